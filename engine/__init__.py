"""The mind: scheduler, KV context, models, perception. Knows no sockets, rooms or Redis."""
