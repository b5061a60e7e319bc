"""Fill a store, and end before anything is flushed: `python -m logstore.bench.die BYTES DIR...`.

The process ends immediately when its standard input ends. So when the parent of the process ends,
the process also ends, even if the parent is killed.
"""

from __future__ import annotations

import os
import sys
import threading

from logstore import LogStore, LogStoreError
from logstore.bench.cases import Case
from logstore.bench.phases import fill, make_logs
from logstore.bench.samples import Sampler


def end_with_parent() -> None:
    """Start a thread that ends this process when its standard input ends."""

    def wait() -> None:
        # Do not use sys.stdin: at exit, this thread would still hold the lock of sys.stdin.
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(size_bytes: int, store_dirs: list[str]) -> None:
    """Append `size_bytes` in total to all log dirs; end the process without closing the store."""
    store = LogStore.open(store_dirs, admin_socket=False)
    case = Case("append", 100, 640)  # batches of 64 KB
    logs = make_logs(store, case)
    fill(logs, case, size_bytes, [Sampler(n) for n in range(len(logs))])
    os._exit(0)


if __name__ == "__main__":
    end_with_parent()
    try:
        main(int(sys.argv[1]), sys.argv[2:])
    except LogStoreError as error:
        sys.exit(str(error))
