"""Move a replica to another log dir, and be gone between the two renames of the swap.

python tests/startup/killed_mover.py SOURCE_DIR TARGET_DIR
"""

from __future__ import annotations

import os
import sys
from typing import Any

from logstore import LogStore
from logstore.disk import files
from mover import ReplicaMover

ENDED = 9


def main(source: str, target: str) -> None:
    """Move `orders-0`; nothing comes behind the first rename."""
    calls: Any = files
    real = calls.rename

    def rename(old: str, new: str) -> None:
        if old.endswith(".move"):
            os._exit(ENDED)
        real(old, new)

    calls.rename = rename
    with LogStore.open([source, target], admin_socket=False) as store, ReplicaMover(store) as mover:
        print(mover.move("orders", 0, target).wait(120))


if __name__ == "__main__":
    main(*sys.argv[1:])
