"""Carry out the requests of clients that change topics, ACLs, quotas and users."""
