"""Do steps of a history on the logs of a store: append, make durable, remove, keep house.

Each is marked in the record, before it begins and after it returned, with the state that it makes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from crash.history_oracle import Key, Record, State, key_of
from logstore import Log, LogConfig, LogStore
from logstore.log.encoded.raw_batches import parse
from logstore.log.host import replicated_to
from logstore.log.write.appender import Appender
from support.clock import Clock
from support.inside import keepers_of
from support.recorder import Recorder

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=256, max_message_bytes=4096)
CONFIGS: dict[Key, LogConfig] = {
    ("plain", 0): SMALL,
    ("small", 3): SMALL.replace(segment_bytes=400, retention_bytes=1500),
    ("timed", 0): SMALL.replace(segment_ms=5000, flush_messages=7),
    ("kafka", 1): SMALL.replace(record_format="kafka"),
    ("follower", 0): SMALL,
}
KEYS = tuple(CONFIGS)
COMPACTED = SMALL.replace(cleanup_policy="compact", segment_bytes=600)
CONFIGS[("compacted", 0)] = COMPACTED
CONFIGS[("compacted", 1)] = COMPACTED.replace(record_format="kafka")
ALL_KEYS = tuple(CONFIGS)


def send(appender: Appender, value: bytes, key: bytes | None) -> None:
    appender.append(value, key=key).result()


class LogSteps:
    """The steps on one log, or on those of one keeper."""

    store: LogStore
    is_moving: set[Key]

    def __init__(self, recorder: Recorder, seed: int, keys: Sequence[Key] = KEYS) -> None:
        self.recorder, self.rng = recorder, random.Random(seed)
        self.clock = Clock()
        self.states: dict[Key, State | None] = dict.fromkeys(keys)
        self.number = 0

    # --- the marks --------------------------------------------------------------------------------

    def does(self, key: Key, state: State | None, how: str, call: Callable[[], object]) -> None:
        """Do an operation that makes a state of a partition."""
        self.recorder.mark(("begin", key, state, how))
        call()
        self.done(key, state, how)

    def done(self, key: Key, state: State | None, how: str) -> None:
        self.states[key] = state
        self.recorder.mark(("done", key, state, how))

    # --- what there is to work on -----------------------------------------------------------------

    def any_log(self) -> tuple[Key, Log, State]:
        """Choose a partition that exists and serves."""
        keys = [key for key in self.states if self.states[key] is not None and self.serves(key)]
        key = self.rng.choice(keys)
        state = self.states[key]
        assert state is not None
        return key, self.store.log(*key), state

    def serves(self, key: Key) -> bool:
        replica = self.store.host.replicas.opened.get(key)  # type: ignore[call-overload]
        return replica is not None and not replica.log_dir.is_offline

    def where(self, key: Key) -> str | None:
        replica = self.store.host.replicas.opened.get(key)  # type: ignore[call-overload]
        return None if replica is None else replica.log_dir.path

    def offline(self) -> list[str]:
        return [d.path for d in self.store.host.replicas.log_dirs if d.is_offline]

    def records(self, log: Log, count: int) -> list[Record]:
        made = []
        for _ in range(count):
            self.number += 1
            filler = self.rng.randbytes(self.rng.choice((3, 40, 90, 150)))
            made.append((b"%d." % self.number + filler, log.leader_epoch))
        return made

    def keys(self, log: Log, records: list[Record]) -> list[bytes | None]:
        """Give the keys of records: those of a compacted log have some."""
        is_compacted = log.config.is_compacted
        return [key_of(value) if is_compacted else None for value, _ in records]

    # --- steps: appending -------------------------------------------------------------------------

    def step_append(self) -> None:
        """Append one record, now and then durably."""
        key, log, state = self.any_log()
        records = self.records(log, 1)
        is_durable = self.rng.random() < 0.2
        self.does(
            key,
            state.with_records(log.log_end_offset, records),
            "durable" if is_durable else "appended",
            lambda: log.append(records[0][0], key=self.keys(log, records)[0], durable=is_durable),
        )

    def step_extend(self) -> None:
        """Append a batch, now and then durably."""
        key, log, state = self.any_log()
        records = self.records(log, self.rng.randint(2, 9))
        is_durable = self.rng.random() < 0.2
        self.does(
            key,
            state.with_records(log.log_end_offset, records),
            "durable" if is_durable else "appended",
            lambda: log.extend(
                [value for value, _ in records], keys=self.keys(log, records), durable=is_durable
            ),
        )

    def step_appender(self) -> None:
        """Have an appender gather records, and send them."""
        key, log, state = self.any_log()
        records = self.records(log, self.rng.randint(1, 6))
        with log.appender(linger=0, max_bytes=200) as appender:
            for record in records:
                state = state.with_records(log.log_end_offset, [record])
                keyed = self.keys(log, [record])[0]
                self.does(key, state, "appended", partial(send, appender, record[0], keyed))

    def step_encoded(self) -> None:
        """Append the encoded batches of a log to another one, which gives them its offsets."""
        _, source, _ = self.any_log()
        key, log, state = self.any_log()
        taken = self.taken(source, self.rng.randint(0, 40))
        if taken is not None and source.config.is_compacted >= log.config.is_compacted:
            raw, _, records = taken
            records = [(value, log.leader_epoch) for value, _ in records]
            after = state.with_records(log.log_end_offset, records)
            self.does(key, after, "appended", lambda: log.append_encoded(raw))

    def step_follow(self) -> None:
        """Append the encoded batches of a log as they are, behind a gap where a log is empty."""
        source_key, source, _ = self.any_log()
        key, log, state = self.any_log()
        end = log.log_end_offset
        is_empty = not log.size_bytes
        taken = self.taken(source, end + self.rng.randint(0, 20) * is_empty)
        if taken is None or source_key == key:
            return
        if source.config.is_compacted < log.config.is_compacted:  # its records have no keys
            return
        raw, first, records = taken
        if (first >= end if is_empty else first == end) and records[0][1] >= log.leader_epoch:
            after = state.with_records(first, records)
            self.does(key, after, "appended", lambda: log.append_as_follower(raw))

    def taken(self, log: Log, offset: int) -> tuple[bytes, int, list[Record]] | None:
        """Read encoded batches; give them, their first offset, and their records."""
        if not log.log_start_offset <= offset < log.log_end_offset:
            return None
        raw = log.read_raw(offset, self.rng.choice((1, 300)))
        headers = [header for _, header in parse(raw)]
        offsets = range(headers[0].base_offset, headers[-1].last_offset + 1)
        state = self.states[log.topic, log.partition]
        assert state is not None
        if not all(o in state.records and o not in state.outdated for o in offsets):
            return None
        return raw, offsets.start, [state.records[o] for o in offsets]

    def step_replicated(self) -> None:
        """Say that followers have some more of a log, the first time or once again."""
        key, log, state = self.any_log()
        offset = log.log_end_offset - self.rng.randint(-3, 12)
        after = state.with_high_watermark(max(offset, 0))
        self.does(key, after, "appended", lambda: log.advance_high_watermark(max(offset, 0)))
        assert log.high_watermark == after.replicated_to

    def look_at_high_watermarks(self) -> None:
        """Take what logs that were opened again say, if it is not less than what was kept."""
        for key, state in list(self.states.items()):
            if state is None or not self.serves(key):
                continue
            found = replicated_to(self.store.log(*key))
            if state.replicated_to is None:
                assert found is None, (key, found)
                continue
            least, most = max(state.kept, state.start), max(state.replicated_to, state.start)
            assert found is not None and least <= found <= most, (key, found, state)
            self.done(key, state._replace(replicated_to=found), "appended")

    def step_epoch(self) -> None:
        """Begin a new leader epoch."""
        _, log, _ = self.any_log()
        log.leader_epoch += self.rng.randint(1, 3)

    # --- steps: what makes durable, and what removes ----------------------------------------------

    def step_flush(self) -> None:
        key, log, state = self.any_log()
        self.does(key, state, "durable", log.flush)

    def step_flush_store(self) -> None:
        self.store.flush()
        self.all_durable()

    def all_durable(self, log_dir: str | None = None) -> None:
        """Note that the logs that serve, of one log dir or of all, are durable."""
        for key, replica in list(self.store.host.replicas.opened.items()):
            if not replica.log_dir.is_offline and log_dir in (None, replica.log_dir.path):
                self.done(key, self.states[key], "durable")

    def step_truncate(self) -> None:
        key, log, state = self.any_log()
        offset = max(log.log_end_offset - self.rng.randint(0, 25), log.log_start_offset)
        how = "trimmed" if offset < log.log_end_offset else "appended"
        keep_lost = offset % 3 == 0
        self.does(
            key, state.until(offset), how, lambda: log.truncate_to(offset, keep_lost=keep_lost)
        )

    def step_delete_before(self) -> None:
        key, log, state = self.any_log()
        offset = max(log.high_watermark - self.rng.randint(0, 40), log.log_start_offset)
        after = state.since(offset)
        self.does(key, after, "started", lambda: log.delete_records_before(offset))

    def step_retain(self) -> None:
        """Roll what is old, and let retention remove what is too much."""
        for path, keeper in list(keepers_of(self.store).items()):
            mine = [
                (key, log, self.states[key])
                for key, (log, log_dir) in list(self.store.host.replicas.opened.items())
                if log_dir.path == path and not log_dir.is_offline
            ]
            for key, log, state in mine:
                assert state is not None
                # How far it goes is the log's to say; no further than its last record.
                limit = max(log.log_end_offset - 1, state.start)
                self.recorder.mark(("begin", key, state.since(limit), "started"))
            keeper.run_one("retention")
            for key, log, state in mine:
                assert state is not None
                self.done(key, state.since(log.log_start_offset), "started")

    def step_time(self) -> None:
        """Let time pass, so that segments become old."""
        self.clock.ms += self.rng.choice((500, 6000))

    def step_keep_house(self) -> None:
        """Let a keeper do what it does every so often."""
        path, keeper = self.rng.choice(list(keepers_of(self.store).items()))
        if path in self.offline():
            return
        duty = self.rng.choice(("flush", "checkpoint", "checkpoint", "probe", "usage"))
        keeper.run_one(duty)
        # During a move, what the copy says of it may be older than the checkpoint.
        if duty == "checkpoint" and not self.is_moving:
            for key, state in list(self.states.items()):
                if state is not None and self.serves(key) and self.where(key) == path:
                    self.done(key, state.keeping(), "appended")

    def step_purge(self) -> None:
        """Let one keeper remove what it was asked to remove by now."""
        path, keeper = self.rng.choice(list(keepers_of(self.store).items()))
        if path not in self.offline():
            keeper.run_due(0.0)

    def step_compact(self) -> None:
        """Compact a log that has keys, sometimes when a tombstone would be due."""
        keys = [k for k in self.states if self.states[k] is not None and self.serves(k)]
        keys = [key for key in keys if CONFIGS[key].is_compacted]
        if keys:
            key = self.rng.choice(keys)
            log, state = self.store.log(*key), self.states[key]
            assert isinstance(log, Log) and state is not None
            after = state.compacted(log.recovery_point)
            self.does(key, after, "appended", log.compact)

    def step_verify(self) -> None:
        key, log, state = self.any_log()
        assert log.verify() == []
        found = {record.offset: record.value for record in log}
        assert state.may_read(found), key

    def step_repair(self) -> None:
        key, _, _ = self.any_log()
        assert not self.store.repair(*key).lost
