"""Test that groups survive restarts, crashes and bad disks, and lose no acknowledged data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.coordinator.errors import CoordinatorError
from broker.coordinator.internal_topic import java_hash, partition_of
from broker.coordinator.offsets_topic import NAME
from broker.groups import records, sessions
from broker.groups.group import Group, State
from broker.groups.offsets import Committed
from broker.wire.error_codes import ErrorCode
from support.coordinating import RETENTION_SECONDS, Bench
from support.inside import abandon
from support.kafka_client import batch_of

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_HERE = ErrorCode.NOT_COORDINATOR
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
STRANGER = ErrorCode.UNKNOWN_MEMBER_ID
TRANSACTIONAL = 0x10


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench([tmp_path / "a"]) as made:
        yield made.load()


# --- restarts and crashes -------------------------------------------------------------------------


def test_groups_and_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    """After a restart, a member continues with its id, generation and assignment."""
    with Bench([tmp_path / "a"]) as bench:
        member = bench.load().member("g")
        assert bench.commit("g", 5, member) is bench.commit("simple", 7) is ErrorCode.NONE
    with Bench([tmp_path / "a"]) as bench:
        assert bench.beat("g", *member) is LOADING
        bench.scheduler.run()
        assert bench.beat("g", *member) is ErrorCode.NONE
        assert bench.sync("g", *member, {}).one.assignment == b"part"
        assert (bench.offset("g"), bench.offset("simple")) == (5, 7)
        assert bench.commit("g", 6, member) is ErrorCode.NONE


def test_a_member_that_does_not_return_after_a_restart_expires(tmp_path: Path) -> None:
    """A member's session begins with the loading, and ends even without a request."""
    with Bench([tmp_path / "a"]) as bench:
        member = bench.load().member("g")
    with Bench([tmp_path / "a"]) as bench:
        bench.load("other").scheduler.until(bench.scheduler.seconds + 9.9)
        assert bench.group("g").state is State.STABLE
        bench.scheduler.until(bench.scheduler.seconds + 0.1)
        assert bench.beat("g", *member) is STRANGER


def test_regression_a_slow_loading_ends_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sessions began when a group was read; if the rest took longer, all members expired."""
    with Bench([tmp_path / "a"]) as bench:
        bench.load()
        members = {name: bench.member(name) for name in ("g", "h", "i")}
    with Bench([tmp_path / "a"]) as bench:
        restored = records.restored

        def slow(*arguments: Any) -> Group:
            group = restored(*arguments)
            bench.scheduler.seconds += 8.0
            return group

        monkeypatch.setattr(records, "restored", slow)
        bench.load("other").scheduler.until(bench.scheduler.seconds + 9.9)
        assert not any(bench.beat(name, *member) for name, member in members.items())


def test_requests_are_refused_while_groups_are_loaded(tmp_path: Path) -> None:
    """While groups are loaded, requests get error 14, which clients repeat."""
    with Bench([tmp_path / "a"]) as bench:
        assert bench.join("g").code is bench.commit("g", 1) is LOADING
        assert bench.sync("g", "m", 1, {}).code is LOADING
        with pytest.raises(CoordinatorError) as caught:
            bench.offset("g")
        assert caught.value.code is LOADING and len(bench.scheduler.tasks) == 1
        bench.load()
        assert bench.groups.shards()[0].all() == []


SCRIPT: list[Callable[[Bench, dict[str, int]], None]] = []


def step(call: Callable[[Bench, dict[str, int]], None]) -> None:
    SCRIPT.append(call)


@step
def _commit(bench: Bench, kept: dict[str, int]) -> None:
    assert bench.commit("simple", 1) is ErrorCode.NONE
    kept["simple"] = 1


@step
def _form(bench: Bench, kept: dict[str, int]) -> None:
    bench.member("g")


@step
def _commit_as_member(bench: Bench, kept: dict[str, int]) -> None:
    (member,) = bench.group("g").members
    assert bench.commit("g", 2, (member, 1)) is ErrorCode.NONE
    kept["g"] = 2


@step
def _commit_again(bench: Bench, kept: dict[str, int]) -> None:
    assert bench.commit("simple", 3) is ErrorCode.NONE
    kept["simple"] = 3


@step
def _rebalance(bench: Bench, kept: dict[str, int]) -> None:
    bench.join("g")


@step
def _complete(bench: Bench, kept: dict[str, int]) -> None:
    first, second = bench.group("g").members
    bench.join("g", first)
    given = {first: b"one", second: b"two"}
    assert bench.sync("g", first, 2, given).code is bench.sync("g", second, 2, {}).code
    kept["generation of g"] = 2


@step
def _delete(bench: Bench, kept: dict[str, int]) -> None:
    with bench.groups.using("simple") as (shard, hosted):
        bench.groups.delete(shard, hosted)
    del kept["simple"]


@pytest.mark.parametrize("count", range(len(SCRIPT) + 1))
def test_nothing_acknowledged_is_lost_in_a_crash(tmp_path: Path, count: int) -> None:
    """The process ends after some steps; the next process has all acknowledged results."""
    kept: dict[str, int] = {}
    bench = Bench([tmp_path / "a"]).load()
    for call in SCRIPT[:count]:
        call(bench, kept)
    bench.topics.close()
    abandon(bench.store)
    with Bench([tmp_path / "a"]) as again:
        again.load("other")
        generation = kept.pop("generation of g", 1)
        assert {name: again.offset(name) for name in kept} == kept
        assert again.offset("simple") == kept.get("simple")
        if count >= 2:
            group = again.group("g")
            assert (group.state, group.generation) == (State.STABLE, generation)
            given = {member.assignment for member in group.members.values()}
            assert given == ({b"part"} if generation == 1 else {b"one", b"two"})


# --- what the log has -----------------------------------------------------------------------------


def offset_batch(offset: int, producer: tuple[int, int, int], attributes: int = 0) -> bytes:
    value = records.offset_value(Committed(offset, -1, "", 1))
    key = records.offset_key("simple", "t", 0)
    return batch_of(value, keys=[key], producer=producer, attributes=attributes)


@pytest.mark.parametrize("commit", [True, False, None])
def test_offsets_of_a_transaction_count_once_it_is_committed(
    tmp_path: Path, commit: bool | None
) -> None:
    """Offsets of an aborted or open transaction do not count; later plain offsets always do."""
    with Bench([tmp_path / "a"]) as bench:
        assert bench.load().commit("simple", 1) is ErrorCode.NONE
        log = bench.store.log(NAME, 0)
        log.append_encoded(offset_batch(99, (7, 0, 0), TRANSACTIONAL))
        if commit is not None:
            log.append_marker(7, 0, commit=commit, coordinator_epoch=0)
        assert bench.commit("other", 2) is ErrorCode.NONE
    with Bench([tmp_path / "a"]) as bench:
        bench.load()
        assert bench.offset("simple") == (99 if commit else 1)
        assert bench.offset("other") == 2


def test_records_that_cannot_be_read_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Unreadable records are reported, and the others count; other kinds are no fault."""
    with Bench([tmp_path / "a"]) as bench:
        assert bench.load().commit("g", 5) is ErrorCode.NONE
        log = bench.store.log(NAME, 0)
        log.extend([b"\0\3short", b"any"], keys=[records.group_key("x"), b"\0\x0fother"])
    with Bench([tmp_path / "a"]) as bench:
        bench.load()
        assert bench.offset("g") == 5
    (row,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert f"{NAME}-0 has 1 records that cannot be read" in row.getMessage()


def test_only_the_last_record_of_a_key_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of 100 MiB has a million commits of a few keys; only the last ones are parsed."""
    with Bench([tmp_path / "a"]) as bench:
        bench.load()
        for offset in range(20):
            assert bench.commit("g", offset) is ErrorCode.NONE
        key, value = records.offset_key("g", "t", 0), records.offset_value(Committed(7, -1, "", 1))
        bench.store.log(NAME, 0).append(value, key=b"\0\0" + key[2:])
    parsed: list[bytes | None] = []
    parse = records.parse

    def counted(key: bytes | None, value: bytes | None) -> object:
        parsed.append(key)
        return parse(key, value)

    monkeypatch.setattr(records, "parse", counted)
    with Bench([tmp_path / "a"]) as bench:
        assert bench.load().offset("g") == 7
    assert parsed == [key, b"\0\0" + key[2:]]


def test_a_member_id_fits_into_the_protocol(bench: Bench) -> None:
    """The member id fits, however long the client id is."""
    member = bench.member("g", client_id="x" * 32_767)
    assert len(member[0]) < 300 and bench.beat("g", *member) is ErrorCode.NONE


# --- deletions ------------------------------------------------------------------------------------


def test_offsets_of_a_deleted_topic_are_deleted(tmp_path: Path) -> None:
    """Offsets of a deleted topic are also deleted in the log; other offsets stay."""
    with Bench([tmp_path / "a"]) as bench:
        bench.load().commit("g", 1, topic="gone")
        bench.commit("g", 2)
        bench.commit("only", 3, topic="gone")
        bench.forget("gone")
        assert (bench.offset("g", "gone"), bench.offset("g")) == (None, 2)
    with Bench([tmp_path / "a"]) as bench:
        bench.load("new")
        assert (bench.offset("g", "gone"), bench.offset("g")) == (None, 2)
        assert bench.offset("only", "gone") is None


def test_offsets_are_deleted_after_their_retention(tmp_path: Path) -> None:
    """Expired offsets are deleted, with their group if it is empty; members keep theirs."""
    with Bench([tmp_path / "a"]) as bench:
        bench.load().commit("old", 1)
        member = bench.member("g", session_timeout=2000.0)
        bench.commit("g", 2, member)
        bench.upkeep.start(bench.scheduler)
        bench.scheduler.until(bench.scheduler.seconds + RETENTION_SECONDS - 200.0)
        bench.commit("young", 3)
        assert bench.offset("old") == 1
        bench.scheduler.until(bench.scheduler.seconds + 300.0)
        assert [bench.offset(name) for name in ("old", "g", "young")] == [None, 2, 3]
        assert bench.code_of("old") is STRANGER
        names = {hosted.group.name for hosted in bench.groups.shards()[0].all()}
        assert names == {"g", "young"}
    with Bench([tmp_path / "a"]) as bench:
        bench.load("new")
        assert [bench.offset(name) for name in ("old", "g", "young")] == [None, 2, 3]


def test_the_retention_runs_on_over_a_restart(tmp_path: Path) -> None:
    """Each offset of a program ends after its own commit; the group ends with the last offset."""
    with Bench([tmp_path / "a"]) as bench:
        bench.load().commit("simple", 1)
        bench.scheduler.until(bench.scheduler.seconds + 100.0)
        bench.commit("simple", 2, topic="later")
        began = bench.scheduler.seconds
    with Bench([tmp_path / "a"]) as bench:
        bench.scheduler.seconds = began + 500.0
        bench.load("new")
        for seconds, offsets in ((900.0, (None, 2)), (1000.0, (None, None))):
            bench.scheduler.seconds = began + seconds
            bench.upkeep.delete_expired()
            assert (bench.offset("simple"), bench.offset("simple", "later")) == offsets
        assert bench.groups.shards()[0].all() == []
    with Bench([tmp_path / "a"]) as bench:
        bench.load("new")
        assert bench.groups.shards()[0].all() == []


def test_a_deleted_group_does_not_return(tmp_path: Path) -> None:
    """A deleted group loses its members, its offsets and its timer."""
    with Bench([tmp_path / "a"]) as bench:
        member = bench.load().member("g")
        bench.commit("g", 1, member)
        bench.groups.leave("g", [(member[0], None)])
        with bench.groups.using("g") as (shard, hosted):
            bench.groups.delete(shard, hosted)
        assert bench.offset("g") is None and bench.scheduler.set_timers == []
    with Bench([tmp_path / "a"]) as bench:
        bench.load()
        assert bench.groups.shards()[0].all() == []


# --- timers ---------------------------------------------------------------------------------------


def test_a_group_has_one_timer(bench: Bench) -> None:
    """The timer fires at the first deadline; heartbeats do not set it again."""
    member = bench.member("g")
    for _ in range(30):
        bench.scheduler.until(bench.scheduler.seconds + 1.0)
        assert bench.beat("g", *member) is ErrorCode.NONE
        assert len(bench.scheduler.set_timers) == 1
    bench.scheduler.until(bench.scheduler.seconds + 9.9)
    assert bench.beat("g", *member) is ErrorCode.NONE
    bench.scheduler.until(bench.scheduler.seconds + 10.0)
    assert bench.beat("g", *member) is STRANGER


def test_commits_keep_a_member(bench: Bench) -> None:
    """Each commit restarts the member's session; no commit sets a second timer."""
    member = bench.member("g")
    for number in range(30):
        bench.scheduler.until(bench.scheduler.seconds + 9.0)
        for _ in range(10):
            assert bench.commit("g", number, member) is ErrorCode.NONE
    assert bench.scheduler.timers_made < 100


def test_a_group_that_nobody_needs_is_forgotten(bench: Bench) -> None:
    """A group that was only asked for, or whose first member did not return, is forgotten."""
    assert bench.join("g", protocols=()).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (shard,) = bench.groups.shards()
    assert shard.all() == []
    assert bench.join("g", needs_known_id=True).code is ErrorCode.MEMBER_ID_REQUIRED
    assert len(shard.all()) == 1
    bench.scheduler.until(bench.scheduler.seconds + 10.0)
    assert shard.all() == [] and bench.scheduler.set_timers == []


def test_the_groups_of_a_partition_have_a_limit(bench: Bench) -> None:
    """Above the limit, new groups are refused, and existing groups are served."""
    for number in range(10):
        assert bench.commit(f"g{number}", 1) is ErrorCode.NONE
    assert bench.commit("g10", 1) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.commit("g9", 2) is ErrorCode.NONE


# --- which partition keeps a group ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),  # two units of 16 bits: 31 * 0xd83d + 0xde00
    ],
)
def test_strings_have_the_hash_of_java(text: str, value: int) -> None:
    """Known values of `String.hashCode`."""
    assert java_hash(text) == value


def test_a_group_is_in_the_same_partition_as_in_kafka() -> None:
    """The absolute value modulo the count; the least integer has none, and counts as 0."""
    assert partition_of("hello", 50) == 99162322 % 50
    assert partition_of("polygenelubricants", 50) == 0
    assert java_hash("console-consumer") < 0
    assert partition_of("console-consumer", 50) == -java_hash("console-consumer") % 50


def test_an_unexpected_error_costs_no_waiting_member_its_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an unexpected error, the groups are read again from the log."""
    member = bench.member("g")
    waiter = bench.join("g")
    assert not waiter.said

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(sessions, "next_deadline", fail)
        with pytest.raises(ZeroDivisionError):
            bench.commit("g", 5, member)
    bench.scheduler.run()
    assert waiter.code is ErrorCode.NOT_COORDINATOR
    assert bench.code_of("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.scheduler.run()
    assert bench.beat("g", *member) is ErrorCode.NONE and bench.offset("g") == 5
