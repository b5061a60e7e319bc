"""Decide about the replicas in an old copy of a log dir; let the user accept the copy."""
