"""Say loudly when a layer of the fault matrix cannot run here; in CI that is a failure."""

from __future__ import annotations

import os

import pytest


def demand(layer: str, why_not: str | None) -> None:
    """Go on when nothing speaks against it; else fail in CI, and elsewhere say what is left out."""
    if why_not is None:
        return
    message = f"LAYER NOT RUN: {layer}: {why_not}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
