"""Interrupt a return at any line by Ctrl-C: the log dir can still be brought back.

`dir_changes.reopen` completes in a thread that no interrupt reaches. If no thread can be had it
runs in the caller's, as here: `__wrapped__` is the call without that thread.
"""

from __future__ import annotations

from pathlib import Path

from logstore import LogStore
from logstore.store.dirs import dir_changes, dir_return
from support.hanging import QUIET
from support.inside import keepers_of, state_of
from support.interrupts import InterruptAt


def test_regression_ctrl_c_at_any_line_leaves_a_dir_that_can_be_reopened(tmp_path: Path) -> None:
    """The dir is then unlocked and offline, or serves; no thread waits for it forever."""
    reopen_here = vars(dir_changes)["reopen"].__wrapped__
    dirs = [str(tmp_path / name) for name in ("a", "b")]
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        store.create("orders", 0, log_dir=dirs[1]).append(b"x")
        number, was_hit = 0, True
        while was_hit:
            number += 1
            store.take_offline(dirs[1])
            with InterruptAt(number, dir_return) as interrupt:
                try:
                    reopen_here(state_of(store), dirs[1], format_new=False)
                except KeyboardInterrupt:
                    assert interrupt.was_hit
            was_hit = interrupt.was_hit
            log_dir = store.host.replicas.find_dir(dirs[1])
            assert log_dir is not None and not store.host.replicas.returning, number
            if log_dir.is_offline:
                store.reopen_dir(dirs[1])
            assert keepers_of(store)[dirs[1]].log_dir is store.host.replicas.find_dir(dirs[1])
            assert store.log("orders", 0)[0].value == b"x"
        assert number > 20
