"""Wait for what a store does in the background."""

from __future__ import annotations

from logstore import LogStore
from support.inside import keepers_of

SECONDS_MAX = 60.0


def wait_until_idle(store: LogStore) -> None:
    """Wait until no keeper is at work; a removal that failed may be left to be tried again."""
    for keeper in list(keepers_of(store).values()):
        assert keeper.wait_idle(SECONDS_MAX)


def wait_for_keepers(store: LogStore) -> None:
    """Wait until all keepers have done what they were asked for, and nobody is asked for more.

    One that is done may have asked another to remove a directory, so they are gone round until
    nothing is left that a log dir in use is to remove.
    """
    is_done = False
    while not is_done:
        wait_until_idle(store)
        is_done = all(
            log_dir.is_offline for log_dir in list(store.host.replicas.copies.doomed.values())
        )
