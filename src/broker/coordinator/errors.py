"""Define the error with which a coordinator refuses a request."""

from __future__ import annotations

from broker.wire.error_codes import ErrorCode


class CoordinatorError(Exception):
    """Report a refused request. `code` is the error code for the client."""

    def __init__(self, code: ErrorCode, reason: str = "") -> None:
        super().__init__(reason or code.name)
        self.code = code
