"""Append encoded batches that a leader gets from clients, or a follower gets from its leader."""
