"""Append batches that a peer encoded: from a client as a leader, from a leader as a follower."""
