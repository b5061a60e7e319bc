"""Records under a name are appended once, even after crashes and repeated appends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore, OutOfOrderSequenceError, Record
from logstore.format.producers import SEQUENCES
from logstore.log.encoded.idempotent_producer import LastAppend
from logstore.log.producers.producer_state import Producers
from support.hanging import QUIET
from support.inside import abandon
from support.producers import known, sent, told

Open = Callable[[], Log]


@pytest.fixture(params=["columnar", "kafka"])
def open_log(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Return a function that opens the same log again, after a kill."""
    opened: list[LogStore] = []

    def open_it() -> Log:
        if opened:
            abandon(opened[-1])
        opened.append(LogStore.open(tmp_path / "d", config=QUIET, admin_socket=False))
        config = LogConfig(record_format=request.param)
        return opened[-1].create("t", 0, config=config, exist_ok=True)

    yield open_it
    opened[-1].close()


@pytest.fixture
def log(open_log: Open) -> Log:
    return open_log()


def values_of(log: Log) -> list[bytes | None]:
    return [record.value for record in log]


def test_a_program_continues_after_what_it_appended(log: Log, open_log: Open) -> None:
    """The log says with which number to continue."""
    lines = [b"%d" % number for number in range(10)]
    producer = log.idempotent_producer("import")
    for line in lines[producer.next_sequence : 4]:
        producer.append(line)
    producer.extend(lines[4:7])
    log = open_log()
    producer = log.idempotent_producer("import")
    assert producer.last == LastAppend(6, 6)
    for line in lines[producer.next_sequence :]:
        producer.append(line, durable=True)
    assert values_of(log) == lines and log.recovery_point == 10
    assert known(log) == told(log)


def test_a_program_that_numbers_its_records_appends_them_again(log: Log, open_log: Open) -> None:
    """For records that the log has, the answer has their offsets, even for a part of a batch."""
    log.append(b"of nobody")
    producer = log.idempotent_producer("import")
    assert producer.append(b"a", sequence=0) == 1
    assert producer.extend([b"b", b"c", b"d"], sequence=1) == range(2, 5)
    producer = open_log().idempotent_producer("import")
    assert producer.append(b"a", sequence=0) == 1
    assert producer.append(b"c", sequence=2) == 3
    assert producer.extend([b"b", b"c", b"d"], sequence=1, durable=True) == range(2, 5)
    assert producer.extend([b"c", b"d"], sequence=2) == range(3, 5)
    assert producer.append(b"e", sequence=4) == 5


def test_what_cannot_be_answered_is_refused(log: Log) -> None:
    """A gap, records of which only some exist, and records that are too old are refused."""
    producer = log.idempotent_producer("import")
    producer.extend([b"a", b"b"])
    with pytest.raises(OutOfOrderSequenceError, match="3 would leave a gap, because 2 is the next"):
        producer.append(b"d", sequence=3)
    with pytest.raises(ValueError, match=r"first 1 of these 2 .* from sequence 2 on"):
        producer.extend([b"b", b"c"], sequence=1)
    for _ in range(5):
        producer.append(b"more")
    with pytest.raises(OutOfOrderSequenceError, match="continue with sequence 7"):
        producer.append(b"a", sequence=0)
    with pytest.raises(ValueError, match="sequence"):
        producer.append(b"a", sequence=-1)
    assert log.log_end_offset == 7


def test_keys_times_and_headers_go_along(log: Log) -> None:
    """Keys, times and headers are passed as for `append` and `extend` of a log."""
    producer = log.idempotent_producer("import")
    producer.append(b"v", key=b"k", timestamp=5, headers={"name": b"h"})
    producer.extend([Record(0, 7, b"k2", b"v2", (), "t", 0)])
    assert producer.extend([]) == range(2, 2) and producer.extend([], sequence=1) == range(2, 2)
    first, second = log.read(0)
    assert (first.key, first.timestamp, first.headers) == (b"k", 5, (("name", b"h"),))
    assert (second.key, second.timestamp, second.value) == (b"k2", 7, b"v2")
    with pytest.raises(TypeError):
        log.idempotent_producer(7)  # type: ignore[arg-type]


def test_names_are_apart_and_are_not_forgotten(log: Log) -> None:
    """Names are kept however long they are idle, and however many producers brokers have."""
    one, two = (log.idempotent_producer(name) for name in ("one", "two"))
    one.append(b"a")
    two.append(b"b")
    log.expire_producers(2**60)
    assert (one.next_sequence, two.next_sequence) == (1, 1)
    all_known = log._state.producers.known
    assert all_known is not None
    full = Producers(all_known.snapshot(), producers_max=4)
    log._state.producers.replace(full)
    for producer_id in range(9):
        log.append_encoded(sent(producer_id, 0))
    assert (one.next_sequence, two.next_sequence) == (1, 1) and len(full) <= 4


def test_the_numbers_go_on_in_the_next_epoch(log: Log) -> None:
    """After 2^31 records, a new epoch begins; records at the boundary are appended together."""
    producer = log.idempotent_producer("import")
    is_columnar = log.config.record_format == "columnar"
    log.append_encoded(sent(producer.producer_id, SEQUENCES - 2, columnar=is_columnar))
    assert producer.next_sequence == SEQUENCES - 1
    times = [1, 2, 3]
    assert producer.extend([b"x", b"y", b"z"], timestamps=times, keys=[b"k"] * 3) == range(1, 4)
    assert producer.last == LastAppend(SEQUENCES + 1, 3)
    assert producer.append(b"z", sequence=SEQUENCES + 1) == 3
    assert [record.timestamp for record in log.read(1)] == times


def test_threads_of_one_name_lose_and_double_nothing(log: Log) -> None:
    """Each record gets its own number."""

    def append(number: int) -> None:
        for at in range(40):
            log.idempotent_producer("import").append(b"%d.%d" % (number, at))

    threads = [threading.Thread(target=append, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = sorted(b"%d.%d" % (number, at) for number in range(3) for at in range(40))
    assert sorted(map(bytes, values_of(log))) == expected  # type: ignore[arg-type]
    assert log.idempotent_producer("import").next_sequence == 120


def test_regression_columns_that_can_be_read_once_survive_a_retry(log: Log) -> None:
    """Another thread appended under the name meanwhile, so the records were encoded twice."""
    one, other = log.idempotent_producer("name"), log.idempotent_producer("name")

    def times() -> Iterator[int]:
        other.append(b"other")
        yield 5

    def headers() -> Iterator[tuple[str, bytes]]:
        other.append(b"other")
        yield "h", b"1"

    assert one.extend([b"one"], timestamps=times()) == range(1, 2)
    assert one.extend([b"two"], headers=[headers()]) == range(3, 4)
    assert log[1].timestamp == 5 and log[3].headers == (("h", b"1"),)


def test_regression_a_cut_batch_keeps_its_producer(log: Log, open_log: Open) -> None:
    """The truncated columnar batch had no producer, so after a kill the name was unknown."""
    producer = log.idempotent_producer("name")
    producer.extend([b"a", b"b"], durable=True)
    producer.extend([b"c", b"d", b"e"], durable=True)
    log.truncate_to(4)
    before = known(log)
    assert told(log) == before
    log = open_log()
    assert known(log) == before and log.idempotent_producer("name").next_sequence == 4


@pytest.mark.parametrize("offset", [3, 9, 10])
def test_regression_deleted_records_are_not_appended_again_after_a_kill(
    log: Log, open_log: Open, offset: int
) -> None:
    """The last snapshot was older than the deleted records, and no other file had the name."""
    producer = log.idempotent_producer("name")
    for first in range(0, 10, 2):
        producer.extend([b"%d" % first] * 2, durable=True)
    log.delete_records_before(offset)
    before = [state[:-1] for state in known(log)]
    log = open_log()
    assert [state[:-1] for state in known(log)] == before
    producer = log.idempotent_producer("name")
    assert producer.next_sequence == 10 and producer.extend([b"8"] * 2, sequence=8) == range(8, 10)


def test_regression_damage_does_not_stop_a_deletion(log: Log) -> None:
    """Because of the damaged batch, no snapshot is written before the new start."""
    producer = log.idempotent_producer("name")
    for number in range(10):
        producer.append(b"%d" % number, durable=True)
    path = Path(log._state.active.log_path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\xff" + data[len(data) // 2 + 1 :])
    log.delete_records_before(9)
    assert log.log_start_offset == 9 and producer.next_sequence == 10
    path.write_bytes(data)


def test_regression_a_truncation_knows_who_appended_only_deleted_records(
    log: Log, open_log: Open
) -> None:
    """There was no snapshot before the cut, and the replay began at the log start."""
    log.idempotent_producer("one").extend([b"1"] * 5)
    log.idempotent_producer("two").extend([b"2"] * 5)
    log.flush()
    log.delete_records_before(6)
    log.truncate_to(8)
    for _ in range(2):
        expected = [log.idempotent_producer(name).next_sequence for name in ("one", "two")]
        assert expected == [5, 3]
        assert log.idempotent_producer("one").extend([b"1"] * 5, sequence=0) == range(5)
        log = open_log()
