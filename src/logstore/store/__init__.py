"""Manage a store: its log dirs, its partitions, its start and its upkeep."""
