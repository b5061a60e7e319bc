"""Decide about the replicas in an old copy of a log dir, and accept the copy if the user does."""
