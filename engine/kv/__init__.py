"""What a session's tokens left behind in the attention layers, and how much of it is kept."""
