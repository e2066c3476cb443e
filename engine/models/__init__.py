"""Loaded models behind one packed forward step."""
