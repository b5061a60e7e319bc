"""In every history of a partition, each start keeps what its user was promised."""

from __future__ import annotations

import os

from startup.history_model import search

DEPTH = int(os.environ.get("LOGSTORE_HISTORY_DEPTH", "10"))


def test_no_start_breaks_a_promise() -> None:
    """More than 100,000 starts after all histories of up to ten steps; each act occurs."""
    outcome = search(DEPTH)
    assert not outcome.violations
    assert outcome.starts > 100_000
    told = {act for acts in outcome.decided for act in acts.split("+")}
    wanted = {"OPEN", "COMPLETE", "INCOMPLETE", "OFFLINE", "RESUME", "PURGE", "PURGE_COVERED"}
    assert told >= wanted
    print(f"{outcome.starts} starts, {outcome.worlds} worlds, {outcome.decided.most_common()}")
