"""Decide about the replicas of an old copy of a log dir; accept the copy if the user says so."""
