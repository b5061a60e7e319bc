"""A store under random operations, and what must be in it: a model outside the engine.

An operation that returns has done exactly what it says. One that was interrupted, or raised, has
done that or nothing; the model then takes over which of both the store shows. What is neither is a
finding.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logstore import Log, LogConfig, LogStore, LogStoreError
from stress.model import Finding, Key, State, Step
from support.hanging import QUIET

SMALL = LogConfig(segment_bytes=1024, max_message_bytes=2048)
DIRS = 3
PARTITIONS_MAX = 6
OFFSETS_MAX = 60


class World:
    """The store, its model and the operations on both."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.dirs = [str(root / f"disk{number}") for number in range(DIRS)]
        self.model: dict[Key, State] = {}
        self._numbers = itertools.count()
        self._names = itertools.count()
        self.store = LogStore.open(self.dirs, config=QUIET)
        for _ in range(2):
            step = self._create()
            step.work()
            self.check(step, is_done=True)

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
        for one in self.store._replicas.log_dirs:
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
            value = self._value()
            if self.store[key].append(value, durable=True) != state.end:
                raise Finding(f"{key}: an append got another offset than {state.end}")
            self.model[key] = state.plus(value)

    def reopen(self) -> None:
        """Close the store and open it again: what is said to be closed in order was."""
        left = self.store.close()
        if left:
            raise Finding(f"not closed in order: {left}")
        self.store = LogStore.open(self.dirs, config=QUIET)
        if not self.store.recovery_report.was_clean:
            raise Finding(f"no orderly close: {self.store.recovery_report}")
        self.check_all()

    # --- operations -------------------------------------------------------------------------------

    def step(self) -> Step:
        """Draw the next operation."""
        if not self.model:
            return self._create()
        return self.random.choice(self.operations())()

    def operations(self) -> list[Callable[[], Step]]:
        return [
            *[self._append] * 5,
            *[self._extend] * 2,
            self._appender,
            self._flush,
            self._flush_all,
            *[self._truncate] * 3,
            *[self._delete_before] * 2,
            self._read,
            self._read_by_time,
            self._verify,
            self._describe,
            self._create,
            self._delete,
            self._repair,
            self._move,
            self._view,
            self._cordon,
            self._prefer,
            self._offline,
            self._close,
            self._retain,
        ]

    def _value(self) -> bytes:
        return b"%d:" % next(self._numbers) + bytes(self.random.randrange(400))

    def _any(self) -> tuple[Key, Log, State]:
        key = self.random.choice(sorted(self.model))
        return key, self.store[key], self.model[key]

    # An interrupted append may leave its records to the next durable one, or to the next start,
    # which finds them on the disk. A further append follows it: what does not stand then is gone.

    def _append(self) -> Step:
        key, log, state = self._any()
        value, durable = self._value(), self.random.random() < 0.5
        after = state.plus(value)

        done: list[int] = []
        marker = self._value()

        def work() -> None:
            done.append(log.append(value, durable=durable))
            assert done == [state.end]

        def settle() -> None:
            if not done:
                log.append(marker, durable=True)

        def between(actual: State | None) -> bool:
            return actual in (state.plus(marker), state.plus(value, marker))

        return Step("append", work, key, after, between, settle)

    def _extend(self) -> Step:
        key, log, state = self._any()
        values = [self._value() for _ in range(self.random.randint(1, 4))]
        done: list[range] = []
        marker = self._value()

        def work() -> None:
            done.append(log.extend(values))
            assert done == [range(state.end, state.end + len(values))]

        def settle() -> None:
            if not done:
                log.append(marker, durable=True)

        def between(actual: State | None) -> bool:
            return actual in (state.plus(marker), state.plus(*values, marker))

        return Step("extend", work, key, state.plus(*values), between, settle)

    def _appender(self) -> Step:
        key, log, state = self._any()
        values = [self._value() for _ in range(self.random.randint(1, 6))]
        appender = log.appender(linger=self.random.choice([0.0, 3600.0]), max_bytes=700)
        futures: list[tuple[bytes, Any]] = []
        done: list[bool] = []
        marker = self._value()

        def work() -> None:
            for value in values:
                futures.append((value, appender.append(value)))
            appender.close()
            done.append(True)

        def settle() -> None:
            appender.close()
            if not done:
                log.append(marker, durable=True)

        def between(actual: State | None) -> bool:
            if actual is None or actual.values[: len(state.values)] != state.values:
                return False
            rest = iter([*values, marker])
            new = actual.values[len(state.values) :]
            for value, future in futures:
                try:
                    offset = future.result(60)
                except (LogStoreError, MemoryError):
                    continue
                if actual.values[offset - state.start] != value:
                    return False
            return all(value in rest for value in new)

        return Step("appender", work, key, state.plus(*values), between, settle)

    def _flush(self) -> Step:
        key, log, state = self._any()

        def work() -> None:
            assert log.flush() == state.end

        return Step("flush", work, key, state)

    def _flush_all(self) -> Step:
        def work() -> None:
            assert self.store.flush() == ()

        return Step("flush of all", work)

    def _truncate(self) -> Step:
        key, log, state = self._any()
        offset = self.random.randint(state.start, state.end)
        after = state.cut(offset)

        def between(actual: State | None) -> bool:  # as a whole, unless no thread could be had
            return actual is not None and actual.end >= offset and actual == state.cut(actual.end)

        return Step("truncate", lambda: log.truncate_to(offset), key, after, between)

    def _delete_before(self) -> Step:
        key, log, state = self._any()
        offset = self.random.randint(state.start, state.end)
        if state.end - state.start > OFFSETS_MAX:
            offset = state.end - 5
        work = lambda: log.delete_records_before(offset)  # noqa: E731
        return Step("delete records", work, key, state.begun_at(offset))

    def _retain(self) -> Step:
        key, log, state = self._any()
        return Step("retention", log.apply_retention, key, state)

    def _read(self) -> Step:
        key, log, state = self._any()

        def work() -> None:
            if state.values:
                offset = self.random.randrange(state.start, state.end)
                assert log[offset].value == state.values[offset - state.start]
            values = [value for batch in log[:].read_batches() for value in batch.values]
            assert values == list(state.values)

        return Step("read", work, key, state)

    def _read_by_time(self) -> Step:
        key, log, state = self._any()

        def work() -> None:
            found = log.offset_for_timestamp(0)
            assert found == (state.start if state.values else None)

        return Step("read by time", work, key, state)

    def _verify(self) -> Step:
        def work() -> None:
            assert self.store.verify().is_sound

        return Step("verify", work)

    def _describe(self) -> Step:
        def work() -> None:
            assert len(self.store.describe_dirs().log_dirs) == DIRS
            self.store.metrics()

        return Step("describe", work)

    def _create(self) -> Step:
        key = (f"t{next(self._names)}", 0)
        if len(self.model) >= PARTITIONS_MAX:
            return self._delete()
        return Step("create", lambda: self.store.create(*key, config=SMALL), key, State(0, ()))

    def _delete(self) -> Step:
        key = self._any()[0]
        return Step("delete", lambda: self.store.delete(*key), key, None)

    def _repair(self) -> Step:
        key, log, state = self._any()
        return Step("repair", log.repair, key, state)

    def _move(self) -> Step:
        from mover import ReplicaMover

        key, _, state = self._any()
        target = self.random.choice(self.dirs)
        movers: list[ReplicaMover] = []

        def work() -> None:
            movers.append(ReplicaMover(self.store))
            movers[0].move(*key, target).wait(60)
            movers[0].close()

        def settle() -> None:
            for close in list(self.store.host._before_close):
                close()

        return Step("move", work, key, state, settle=settle)

    def _view(self) -> Step:
        key, _, state = self._any()

        def work() -> None:
            with LogStore.open(self.dirs, read_only=True, config=QUIET) as view:
                assert [one.value for one in view[key]] == list(state.values)

        return Step("view", work, key, state)

    def _cordon(self) -> Step:
        path = self.random.choice(self.dirs)

        def work() -> None:
            self.store.cordon(path)
            self.store.uncordon(path)

        return Step("cordon", work, settle=lambda: self.store.uncordon(path))

    def _prefer(self) -> Step:
        path = self.random.choice([*self.dirs, None])
        return Step("prefer", lambda: self.store.prefer_dir("later", 0, path))

    def _offline(self) -> Step:
        path = self.random.choice(self.dirs)

        def work() -> None:
            self.store.take_offline(path)
            self.store.reopen_dir(path)

        def settle() -> None:  # it is offline by its user's word, and comes back by it
            if self.store._dir_named(path).is_offline:
                self.store.reopen_dir(path)

        return Step("offline and back", work, settle=settle)

    def _close(self) -> Step:
        """Close and open; a close or an open that was interrupted is done again."""
        store = self.store

        def work() -> None:
            assert store.close() == ()
            self.store = LogStore.open(self.dirs, config=QUIET)

        def settle() -> None:
            if self.store is store:
                left = store.close()
                if left:
                    raise Finding(f"not closed in order: {left}")
                self.store = LogStore.open(self.dirs, config=QUIET)

        return Step("close and open", work, settle=settle)
