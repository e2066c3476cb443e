"""The mind: scheduler, KV context, models and perception. Knows nothing of sockets, rooms or Redis."""
