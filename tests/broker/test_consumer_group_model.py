"""Hold groups of the new protocol to KIP-848, for any order of requests, losses, time and restarts.

The ledger (`support.consumer_group_world`) knows what each client was told. It has no copy of the
code. LOGSTORE_CONSUMER_GROUP_HISTORIES sets how many random histories run.
"""

from __future__ import annotations

import os
import random

from support.consumer_group_history import History

HISTORIES = int(os.environ.get("LOGSTORE_CONSUMER_GROUP_HISTORIES", "40"))
STEPS = 60


def test_no_history_breaks_a_promise() -> None:
    """No partition has two readers; at rest, each has one; no epoch goes back."""
    first = random.SystemRandom().randrange(1_000_000_000)
    for seed in range(first, first + HISTORIES):
        print(f"seed {seed}")
        History(seed).run(STEPS)
