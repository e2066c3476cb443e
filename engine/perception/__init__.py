"""Turns media into what the model can use and into annotations with real coordinates."""
