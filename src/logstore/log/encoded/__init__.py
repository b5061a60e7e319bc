"""Append encoded batches: as a leader, the batches of clients; as a follower, the leader's."""
