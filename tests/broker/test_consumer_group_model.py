"""Hold groups of the new protocol to KIP-848, for any order of requests, losses, time and restarts.

The ledger (`support.consumer_group_world`) knows what each client was told. It has no copy of the
code. LOGSTORE_CONSUMER_GROUP_HISTORIES sets how many random histories run.
"""

from __future__ import annotations

import os
import random

from support.consumer_group_history import History
from support.mixed_group_history import MixedHistory

HISTORIES = int(os.environ.get("LOGSTORE_CONSUMER_GROUP_HISTORIES", "40"))
STEPS = 60


def test_no_history_breaks_a_promise() -> None:
    """No partition has two readers; at rest, each has one; no epoch goes back."""
    first = random.SystemRandom().randrange(1_000_000_000)
    for seed in range(first, first + HISTORIES):
        print(f"seed {seed}")
        History(seed).run(STEPS)


def test_no_history_of_both_protocols_breaks_a_promise() -> None:
    """Members of both protocols come and go, and the group changes its protocol while they read.

    No partition has two readers; at rest, each has one; no member is stuck; no offset is lost.
    """
    first = random.SystemRandom().randrange(1_000_000_000)
    conversions = 0
    for seed in range(first, first + HISTORIES):
        print(f"seed {seed}")
        conversions += MixedHistory(seed).run(STEPS)
    assert conversions > HISTORIES / 2
