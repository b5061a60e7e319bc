"""Keep every test apart from the machine it runs on."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Examples are drawn anew at each run; a failure prints what replays it, no matter how long it took.
settings.register_profile("logstore", deadline=None, print_blob=True)
settings.load_profile("logstore")


@pytest.fixture(autouse=True)
def same_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the user's own log dirs and terminal from the tests, and put the directory back."""
    for name in [name for name in os.environ if name.startswith("LOGSTORE_LOG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")
    here = os.getcwd()
    yield
    os.chdir(here)
