"""Say why a coordinator does not do what it was asked."""

from __future__ import annotations

from broker.wire.error_codes import ErrorCode


class CoordinatorError(Exception):
    """Report a request that is not done; `code` tells the client what to do."""

    def __init__(self, code: ErrorCode, reason: str = "") -> None:
        super().__init__(reason or code.name)
        self.code = code
