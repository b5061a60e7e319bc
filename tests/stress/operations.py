"""The operations of a random program: all that a user can ask of a store and of its logs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from logstore import LogStore, LogStoreError
from logstore.store.admin.client import find_owner
from stress.appends import Appends
from stress.model import Finding, State, Step
from stress.world import DIRS

PARTITIONS_MAX = 6
OFFSETS_MAX = 60


class Program(Appends):
    """Draws operations, and says what each makes of the model."""

    def begin(self) -> None:
        """Create the first partitions."""
        for _ in range(2):
            step = self._create()
            step.work()
            self.check(step, is_done=True)

    def step(self) -> Step:
        """Draw the next operation."""
        if not self.model:
            return self._create()
        return self.random.choice(self.operations())()

    def operations(self) -> list[Callable[[], Step]]:
        return [
            *[self.append] * 5,
            *[self.extend] * 2,
            *[self.append_encoded] * 2,
            *[self.append_as_follower] * 2,
            self.appender,
            self._flush,
            self._flush_all,
            *[self._truncate] * 3,
            *[self._delete_before] * 2,
            self._read,
            self._slice,
            self._read_by_time,
            self._verify,
            self._describe,
            self._create,
            self._delete,
            self._repair,
            self._promote,
            self._move,
            self._view,
            self._cordon,
            self._prefer,
            self._offline,
            self._add_dir,
            self._admin,
            self._close,
            self._retain,
        ]

    def _flush(self) -> Step:
        key, log, state = self.any()

        def work() -> None:
            assert log.flush() == state.end

        return Step("flush", work, key, state)

    def _flush_all(self) -> Step:
        def work() -> None:
            assert self.store.flush() == ()

        return Step("flush of all", work)

    def _truncate(self) -> Step:
        key, log, state = self.any()
        offset = self.random.randint(state.start, state.end)
        after = state.cut(offset)

        def between(actual: State | None) -> bool:  # as a whole, unless no thread could be had
            return actual is not None and actual.end >= offset and actual == state.cut(actual.end)

        return Step("truncate", lambda: log.truncate_to(offset), key, after, between)

    def _delete_before(self) -> Step:
        key, log, state = self.any()
        offset = self.random.randint(state.start, state.end)
        if state.end - state.start > OFFSETS_MAX:
            offset = state.end - 5
        work = lambda: log.delete_records_before(offset)  # noqa: E731
        return Step("delete records", work, key, state.begun_at(offset))

    def _retain(self) -> Step:
        key, log, state = self.any()
        return Step("retention", log.apply_retention, key, state)

    def _read(self) -> Step:
        key, log, state = self.any()

        def work() -> None:
            if state.values:
                offset = self.random.randrange(state.start, state.end)
                assert log[offset].value == state.values[offset - state.start]
            values = [value for batch in log[:].read_batches() for value in batch.values]
            assert values == list(state.values)

        return Step("read", work, key, state)

    def _slice(self) -> Step:
        key, log, state = self.any()
        first = self.random.randint(state.start, state.end)
        last = self.random.randint(first, state.end)

        def work() -> None:
            wanted = state.values[first - state.start : last - state.start]
            assert [one.value for one in log[first:last]] == list(wanted)
            found = log.read_batches(first, end_offset=last, zero_copy=True)
            assert [value for batch in found for value in batch.values] == list(wanted)
            assert first == state.end or log.read_raw(first, 1000)

        return Step("slice", work, key, state)

    def _read_by_time(self) -> Step:
        key, log, state = self.any()

        def work() -> None:
            found = log.offset_for_timestamp(0)
            assert found == (state.start if state.values else None)

        return Step("read by time", work, key, state)

    def _verify(self) -> Step:
        def work() -> None:
            report = self.store.verify()
            assert not report.problems, report
            for one in report.logs:
                if one.error is not None:
                    raise one.error

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
        return Step(
            "create",
            lambda: self.store.create(*key, config=self.random.choice(self.configs)),
            key,
            State(0, ()),
        )

    def _delete(self) -> Step:
        key = self.any()[0]
        return Step("delete", lambda: self.store.delete(*key), key, None)

    def _repair(self) -> Step:
        key, log, state = self.any()
        return Step("repair", log.repair, key, state)

    def _promote(self) -> Step:
        key, _, state = self.any()

        def work() -> None:
            assert not self.store.promote(*key)  # it is whole

        return Step("promote", work, key, state)

    def _move(self) -> Step:
        from mover import ReplicaMover

        key, _, state = self.any()
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
        key, _, state = self.any()

        def work() -> None:
            with LogStore.open(self.dirs, read_only=True, config=self.store_config) as view:
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
            if self.store.host.dir_named(path).is_offline:
                self.store.reopen_dir(path)

        return Step("offline and back", work, settle=settle)

    def _add_dir(self) -> Step:
        path = str(self.root / f"further{next(self._names)}")

        def work() -> None:
            self.store.add_dir(path)
            self.store.remove_dir(path)

        def settle() -> None:
            if path in self.store.log_dirs:
                self.store.remove_dir(path)

        return Step("add and remove a dir", work, settle=settle)

    def _admin(self) -> Step:
        path = self.random.choice(self.dirs)
        key, _, state = self.any()

        def work() -> None:
            owner = find_owner(self.dirs)
            if owner is None:
                if self.store.admin.path is None:
                    return  # it was opened without the means for a socket
                raise LogStoreError("nobody answers")
            assert len(owner.call("describe_dirs", timeout=20)["log_dirs"]) == DIRS
            owner.call("cordon", {"path": path}, timeout=20)
            owner.call("uncordon", {"path": path}, timeout=20)
            row = owner.call("repair", {"topic": key[0], "partition": key[1]}, timeout=20)
            assert not row["lost"]

        def settle() -> None:
            owner = find_owner(self.dirs)
            if owner is not None:  # what was sent before this, the owner has begun when it answers
                owner.call("ping", timeout=20)
                for thread in threading.enumerate():
                    if thread.name == "logstore-admin-request":
                        thread.join()
            self.store.uncordon(path)

        return Step("admin", work, key, state, settle=settle)

    def _close(self) -> Step:
        """Close and open; a close or an open that was interrupted is done again."""
        store = self.store

        def work() -> None:
            if self.close():
                raise LogStoreError("not closed cleanly")
            self.store = self.open()

        def settle() -> None:
            if self.store is store:
                left = self.close_again()
                if left:
                    raise Finding(f"not closed cleanly: {left}")
                self.store = self.open()

        return Step("close and open", work, settle=settle)
