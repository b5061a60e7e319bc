"""Append encoded batches: a leader appends its clients' batches, a follower the leader's."""
