"""Fill a store and die before anything is flushed: `python -m logstore.bench.die BYTES DIR...`."""

from __future__ import annotations

import os
import sys

from logstore import LogStore
from logstore.bench.cases import Case
from logstore.bench.phases import fill, make_logs
from logstore.bench.samples import Sampler


def main(size_bytes: int, store_dirs: list[str]) -> None:
    """Append so many bytes over all log dirs and end the process where it stands."""
    store = LogStore.open(store_dirs, admin_socket=False)
    case = Case("append", 100, 640)  # batches of 64 KB
    logs = make_logs(store, case)
    fill(logs, case, size_bytes, [Sampler(n) for n in range(len(logs))])
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
