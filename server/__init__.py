"""The house itself: connections, rooms, the room log, brokers, auth, metrics, command line."""
