"""Append encoded batches: a leader's batches come from clients, a follower's from its leader."""
