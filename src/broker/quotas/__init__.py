"""Limit the rates of users and clients, without I/O (KIP-13, KIP-219, KIP-257, KIP-546)."""
