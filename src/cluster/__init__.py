"""Replicate partitions between brokers: controller, elections, followers."""
