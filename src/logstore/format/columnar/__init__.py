"""Encode, decode and check this engine's own columnar record batch."""
