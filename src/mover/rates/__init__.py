"""Limit the rate of moves."""
