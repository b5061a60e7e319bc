"""The operations of a random program that append records, in every way there is.

An interrupted append may leave its records to the next durable one, or to the next start, which
finds them on the disk. A further append follows it: what is not there then is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from logstore import Log, LogStoreError
from logstore.format import layouts
from logstore.log.write import encode
from logstore.log.write.appender import Appender
from stress.model import Key, State, Step
from stress.world import World


class Appends(World):
    """Draws appends, and says what each makes of the model."""

    def append(self) -> Step:
        key, log, state = self.any()
        value, durable = self.value(), self.random.random() < 0.5
        after = state.plus(value)

        done: list[int] = []
        marker = self.value()

        def work() -> None:
            done.append(log.append(value, durable=durable))
            assert done == [state.end]

        def settle() -> None:
            if not done:
                log.append(marker, durable=True)

        def between(actual: State | None) -> bool:
            return actual in (state.plus(marker), state.plus(value, marker))

        return Step("append", work, key, after, between, settle)

    def extend(self) -> Step:
        key, log, state = self.any()
        values = [self.value() for _ in range(self.random.randint(1, 4))]
        done: list[range] = []
        marker = self.value()

        def work() -> None:
            done.append(log.extend(values))
            assert done == [range(state.end, state.end + len(values))]

        def settle() -> None:
            if not done:
                log.append(marker, durable=True)

        def between(actual: State | None) -> bool:
            return actual in (state.plus(marker), state.plus(*values, marker))

        return Step("extend", work, key, state.plus(*values), between, settle)

    def _encoded(self, base_offset: int) -> tuple[list[bytes], bytes]:
        """Make some values, and whole batches of them, as a peer would send them."""
        values: list[bytes] = []
        batches: list[bytes] = []
        for _ in range(self.random.randint(1, 3)):
            some = [self.value() for _ in range(self.random.randint(1, 2))]
            payload = encode.build(
                some,
                None,
                None,
                None,
                now_ms=1_700_000_000_000,
                codec_id=0,
                is_log_append_time=False,
                magic=self.random.choice(list(layouts.MAGICS.values())),
            )
            batches += map(bytes, layouts.frame(payload, base_offset + len(values), 0))
            values += some
        return values, b"".join(batches)

    def append_encoded(self) -> Step:
        key, log, state = self.any()
        values, raw = self._encoded(self.random.randrange(10**6))
        return self._batches("append encoded", key, log, state, values, log.append_encoded, raw)

    def append_as_follower(self) -> Step:
        key, log, state = self.any()
        values, raw = self._encoded(state.end)
        append = log.append_as_follower
        return self._batches("append as follower", key, log, state, values, append, raw)

    def _batches(
        self,
        name: str,
        key: Key,
        log: Log,
        state: State,
        values: list[bytes],
        append: Callable[[bytes], Iterable[int]],
        raw: bytes,
    ) -> Step:
        done: list[range] = []
        marker = self.value()

        def work() -> None:
            offsets = list(append(raw))
            done.append(range(offsets[0], offsets[-1] + 1))
            assert done == [range(state.end, state.end + len(values))]

        def settle() -> None:
            if not done:
                log.append(marker, durable=True)

        def between(actual: State | None) -> bool:  # all of them or none
            return actual in (state.plus(marker), state.plus(*values, marker))

        return Step(name, work, key, state.plus(*values), between, settle)

    def appender(self) -> Step:
        key, log, state = self.any()
        values = [self.value() for _ in range(self.random.randint(1, 6))]
        linger, max_bytes = self.random.choice([0.0, 3600.0]), 2 * self.value_bytes_max
        appenders: list[Appender] = []
        futures: list[tuple[bytes, Any]] = []
        done: list[bool] = []
        marker = self.value()

        def work() -> None:
            appenders.append(log.appender(linger=linger, max_bytes=max_bytes))
            for value in values:
                futures.append((value, appenders[0].append(value)))
            appenders[0].close()
            for _, future in futures:
                future.result(60)
            done.append(True)

        def settle() -> None:
            for appender in appenders:
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
