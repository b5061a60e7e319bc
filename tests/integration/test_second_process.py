"""Read in other processes while the owner truncates, retains and deletes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.second_reader import ENTRY, value_of
from logstore import LogConfig, LogStore
from support.places import environment, fast_directory

PROGRAM = Path(__file__).with_name("second_reader.py")
READS = 500
READERS = 2
CONFIG = LogConfig(segment_bytes=16384, index_interval_bytes=512, retention_bytes=120_000)


class Owner:
    """Writes, and keeps the ledger of what each generation lost."""

    def __init__(self, store: LogStore, ledger: Path, rng: random.Random) -> None:
        self.store, self.rng = store, rng
        self.ledger = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.generation = 0
        self.counts = dict.fromkeys(("append", "truncate", "delete", "retain", "recreate"), 0)
        self.log: Any = store.create("orders", 0, config=CONFIG)

    def end_generation(self, lost: int) -> None:
        os.write(self.ledger, ENTRY.pack(self.generation, lost))
        self.generation += 1

    def append(self) -> None:
        end, count = self.log.log_end_offset, self.rng.randint(1, 40)
        values = [value_of(end + i, self.generation) for i in range(count)]
        assert self.log.extend(values) == range(end, end + count)

    def truncate(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = max(start, end - self.rng.randrange(300))
        self.log.truncate_to(offset)
        self.end_generation(offset)

    def delete(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.delete_records_before(self.rng.randint(start, start + (end - start) // 3))

    def recreate(self) -> None:
        self.store.delete("orders", 0)
        self.end_generation(0)
        self.log = self.store.create("orders", 0, config=CONFIG)

    def has_more_to_do(self) -> bool:
        """Tell whether one of the changes that readers are to meet was hardly made yet."""
        return min(self.counts[what] for what in ("append", "truncate", "delete", "retain")) < 6

    def step(self) -> None:
        dice = self.rng.random()
        if dice < 0.9:
            what, call = "append", self.append
        elif dice < 0.95:
            what, call = "truncate", self.truncate
        elif dice < 0.97:
            what, call = "delete", self.delete
        elif dice < 0.9995:
            what, call = "retain", self.log.apply_retention
        else:
            what, call = "recreate", self.recreate
        call()
        self.counts[what] += 1


@pytest.mark.timeout(300)
def test_a_second_process_never_sees_a_wrong_record() -> None:
    """Readers beside a changing log live, and every record they see is the one at its offset."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"second process: seed {seed}")
    with fast_directory() as base, LogStore.open(base / "logs") as store:
        owner = Owner(store, base / "ledger", random.Random(seed))
        owner.append()
        readers = [
            subprocess.Popen(
                [sys.executable, "-X", "faulthandler", str(PROGRAM), str(base / "logs")]
                + [str(base / "ledger"), str(READS), str(seed + number)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(),
            )
            for number in range(READERS)
        ]
        try:
            while any(reader.poll() is None for reader in readers) or owner.has_more_to_do():
                owner.step()
            for reader in readers:
                out, err = reader.communicate()
                assert reader.returncode == 0, f"{reader.returncode}: {err[-3000:]}"
                counts = json.loads(out)
                print(f"second process: {counts}")
        finally:
            for reader in readers:
                reader.kill()
    print(f"second process: the owner did {owner.counts}")
