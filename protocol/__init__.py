"""The language of Consilium as pure code: messages, media frames, flow control and room state."""
