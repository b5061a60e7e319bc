"""Append records, and make them durable."""
