"""Two log dirs, and an old copy of the first one that can be put in its place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from logstore import LogStore, TopicPartition
from support.hanging import QUIET

ORDERS, PAYMENTS, OTHER = (TopicPartition(name, 0) for name in ("orders", "payments", "other"))


def opened(dirs: list[str]) -> LogStore:
    return LogStore.open(dirs, config=QUIET, admin_socket=False)


class Disks:
    """Two log dirs; the first has two partitions, and an old copy of it is put in and taken out."""

    def __init__(self, root: Path) -> None:
        self.dirs = [str(root / "a"), str(root / "b")]
        self.copy, self.right = str(root / "copy"), str(root / "right")
        with opened(self.dirs) as store:
            store.create(*ORDERS, log_dir=self.dirs[0]).extend([b"0"] * 5)
            store.create(*PAYMENTS, log_dir=self.dirs[0]).extend([b"0"] * 5)
            store.create(*OTHER, log_dir=self.dirs[1]).extend([b"0" * 1000] * 50)
        shutil.copytree(self.dirs[0], self.copy)

    def put_in(self) -> None:
        os.rename(self.dirs[0], self.right)
        os.rename(self.copy, self.dirs[0])

    def take_out(self) -> None:
        os.rename(self.dirs[0], self.copy)
        os.rename(self.right, self.dirs[0])
