"""A store under random operations, and what must be in it: a model outside the engine.

An operation that returns has done exactly what it says. One that was interrupted, or raised, has
done that or nothing; the model then takes over which of both the store shows. What is neither is a
finding.
"""

from __future__ import annotations

import glob
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

from logstore import Log, LogConfig, LogStore, StoreConfig
from stress.model import Finding, Key, State, Step
from stress.syncs import Syncs
from support.hanging import QUIET

SMALL = LogConfig(segment_bytes=1024, max_message_bytes=2048)
DIRS = 3


class World:
    """The store, its model and the operations on both."""

    def __init__(
        self,
        root: Path,
        seed: int,
        configs: Sequence[LogConfig] = (SMALL,),
        value_bytes_max: int = 400,
        store_config: StoreConfig = QUIET,
    ) -> None:
        self.random = random.Random(seed)
        self.syncs = Syncs.watch()
        self.root = root
        self.dirs = [str(root / f"disk{number}") for number in range(DIRS)]
        self.configs = configs
        self.value_bytes_max = value_bytes_max
        self.store_config = store_config
        self.model: dict[Key, State] = {}
        self._numbers = itertools.count()
        self._names = itertools.count()
        self.store = self.open()

    def open(self) -> LogStore:
        """Open the store."""
        return LogStore.open(self.dirs, config=self.store_config)

    def value(self) -> bytes:
        """Make a value that no other record has."""
        return b"%d:" % next(self._numbers) + bytes(self.random.randrange(self.value_bytes_max))

    def any(self) -> tuple[Key, Log, State]:
        """Choose a partition."""
        key = self.random.choice(sorted(self.model))
        return key, self.store[key], self.model[key]

    # --- what is there ----------------------------------------------------------------------------

    def state_of(self, key: Key) -> State | None:
        """Read a partition as a user would; raises Finding for one that is unsound."""
        if key not in self.store:
            return None
        log = self.store[key]
        records = list(log)
        start, end = log.log_start_offset, log.log_end_offset
        if [one.offset for one in records] != list(range(start, end)):
            raise Finding(f"{key}: {start}..{end} has {[one.offset for one in records]}")
        return State(start, tuple(one.value or b"" for one in records))

    def check_dirs(self) -> None:
        """See that no log dir is blamed: all disks of this machine are good."""
        for one in self.store.host.replicas.log_dirs:
            if one.is_offline or one.is_suspect:
                raise Finding(f"{one.path} is blamed: {one.reason}")

    def check(self, step: Step, is_done: bool) -> None:
        """See that the store holds what it may, and take that over."""
        self.check_dirs()
        if step.key is None:
            return
        before, actual = self.model.get(step.key), self.state_of(step.key)
        is_fine = (
            actual == step.after
            if is_done
            else (actual in (before, step.after) or step.between(actual))
        )
        if not is_fine:
            raise Finding(f"{step.name} of {step.key}: {before} became {actual}, not {step.after}")
        if actual is None:
            self.model.pop(step.key, None)
        else:
            self.model[step.key] = actual

    def check_all(self) -> None:
        """See that every partition is what the model has, is sound, and takes records."""
        self.check_dirs()
        if set(self.store) != set(self.model):
            raise Finding(f"partitions {set(self.store)} instead of {set(self.model)}")
        for key, state in list(self.model.items()):
            actual = self.state_of(key)
            if actual != state:
                raise Finding(f"{key}: {actual} instead of {state}")
            problems = self.store[key].verify()
            if problems:
                raise Finding(f"{key}: {problems}")
            value = self.value()
            if self.store[key].append(value, durable=True) != state.end:
                raise Finding(f"{key}: an append got another offset than {state.end}")
            self.model[key] = state.plus(value)

    def close(self) -> tuple[str, ...]:
        """Close the store; name what was not closed cleanly. The rest is on the disk."""
        left = self.store.close()
        for path in set(self.dirs) - set(left):
            for name in glob.glob(f"{path}/*-0/*.log"):
                if self.syncs.is_unsynced(name):
                    raise Finding(f"{name} is not synced, but {path} was closed in order")
        return left

    def close_again(self) -> tuple[str, ...]:
        """Close the store after a close that broke off; name what is to be found fault with."""
        return self.close()

    def reopen(self) -> None:
        """Close the store and open it again: what is said to be closed in order was."""
        left = self.close()
        if left:
            raise Finding(f"not closed cleanly: {left}")
        self.store = self.open()
        if not self.store.recovery_report.was_clean:
            raise Finding(f"no orderly close: {self.store.recovery_report}")
        self.check_all()
