"""Define the errors of logins. No error contains a password or a key."""

from __future__ import annotations


class LoginFailedError(Exception):
    """Report that a client could not log in. The client may see the text."""


class BadCredentialError(ValueError):
    """Report that a credential cannot be stored or read."""
