"""Test that Spark's reads of a cluster believe no broker that was replaced or knows too little."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster.spark import bounds, cluster_origin, leader_reading
from cluster.spark.cluster_map import ClusterMap, NotKnownYetError, TopicRow
from cluster.spark.leader_reading import LeaderReading, TopicGoneError
from cluster.spark.pieces import ClusterPiece
from logstore import OffsetOutOfRangeError, TopicPartition, UnknownPartitionError
from logstore.spark.options import ReadOptions, read_options
from logstore.spark.read.offsets import Reached, short_id
from logstore.spark.read.stream import StreamReader

KEY, ID, OTHER_ID = TopicPartition("t", 0), b"i" * 16, b"j" * 16
SHORT, LONG = 0.05, 60.0
Fetched = m.FetchResponse
Listed = m.ListOffsetsResponse


def map_of(leader: int, epoch: int, topic_id: bytes = ID) -> ClusterMap:
    """Give a cluster in which one of two brokers leads the only partition."""
    row = SimpleNamespace(
        partition_index=0, leader_id=leader, leader_epoch=epoch, isr_nodes=[leader],
        replica_nodes=[1, 2],
    )  # fmt: skip
    topics = {"t": TopicRow(topic_id, False, {0: row})}
    nodes = {one: SimpleNamespace(node_id=one, host="broker", port=one) for one in (1, 2)}
    return ClusterMap(nodes, topics, {}, True)


LEADS, LACKS = map_of(2, 6), map_of(2, 6)._replace(topics={})


class Brokers:
    """The maps of the cluster, in the order in which they are found, and two logs.

    Attributes:
        maps: the last map remains.
        ends: the high watermark of each broker.
        epochs: the leader epoch of each broker.
        asked: the leader epochs in the requests.
    """

    def __init__(self) -> None:
        self.maps = [LEADS]
        self.ends, self.epochs = {1: 80, 2: 120}, {1: 5, 2: 6}
        self.asked: list[int] = []
        self.on_answer: Callable[[], None] = lambda: None

    def find(self, servers: str, topics: object = None) -> ClusterMap:
        return self.maps.pop(0) if len(self.maps) > 1 else self.maps[0]

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, leader: Any, api: tuple[int, int], request: Any) -> Any:
        broker = leader.node_id
        one = request.topics[0].partitions[0]
        self.asked.append(one.current_leader_epoch)
        code = ErrorCode.NONE
        if one.current_leader_epoch > self.epochs[broker]:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif one.current_leader_epoch < self.epochs[broker]:
            code = ErrorCode.FENCED_LEADER_EPOCH
        self.on_answer()
        if api[0] == bounds.LIST_OFFSETS[0]:
            offset = 0 if one.timestamp == bounds.EARLIEST else self.ends[broker]
            row = Listed.ListOffsetsPartitionResponse(0, code, -1, offset)
            return Listed(topics=[Listed.ListOffsetsTopicResponse("t", [row])])
        if not code and one.fetch_offset > self.ends[broker]:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        # There are no records, so the reader steps to the end of its range.
        end = self.ends[broker]
        data = Fetched.PartitionData(0, code, end, end, 0, records=b"", aborted_transactions=None)
        topic = Fetched.FetchableTopicResponse(topic_id=ID, partitions=[data])
        return Fetched(responses=[topic])


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(bounds, "cluster_map", made.find)
    monkeypatch.setattr(leader_reading, "cluster_map", made.find)
    monkeypatch.setattr(bounds, "connected", lambda servers: made)
    for name in ("MISSING_SECONDS", "OLD_LEADER_SECONDS", "SECONDS_MAX"):
        monkeypatch.setattr(bounds, name, LONG)
    monkeypatch.setattr(bounds, "PAUSE_SECONDS", 0.001)
    return made


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges of offsets that streams plan to read."""
    found: list[tuple[int, int]] = []

    def pieces(spans: Any, starts: Any, ends: Any, _: object) -> list[Any]:
        found.extend((starts[key], ends[key]) for key in spans if starts[key] < ends[key])
        return []

    monkeypatch.setattr(cluster_origin, "pieces_of", pieces)
    return found


def options_of(is_strict: bool, **more: str) -> ReadOptions:
    given = {"brokers": "b:1", "subscribe": "t", "failOnDataLoss": str(is_strict).lower(), **more}
    return read_options(given, is_stream=True)


def at(offset: int, topic_id: bytes = ID) -> dict[str, Any]:
    """Give the document of a checkpoint."""
    return {"t": {"0": offset}, "topic ids": {"t": {"0": short_id(topic_id)}}}


@pytest.fixture(params=[True, False], ids=["strict", "lax"])
def is_strict(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


# --- surveys --------------------------------------------------------------------------------------


def test_regression_a_question_names_the_leader_epoch(brokers: Brokers, is_strict: bool) -> None:
    """A broker that does not lead in this epoch yet refuses, and is asked again."""
    brokers.epochs[2] = 5

    def elect() -> None:
        brokers.epochs[2] = 6

    brokers.on_answer = elect
    (span,) = bounds.survey(options_of(is_strict)).values()
    assert (span.start, span.end) == (0, 120)
    assert set(brokers.asked) == {6}


def test_regression_a_topic_that_no_broker_has_may_come_back(
    brokers: Brokers, is_strict: bool
) -> None:
    """Kafka's clients also ask again after UNKNOWN_TOPIC_OR_PARTITION."""
    brokers.maps = [LACKS, LACKS, LEADS, LACKS, LACKS, LEADS]
    assert bounds.survey(options_of(is_strict))[KEY].end == 120


def test_a_topic_counts_as_missing_after_some_seconds(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the source reports it, or leaves it out."""
    monkeypatch.setattr(bounds, "MISSING_SECONDS", SHORT)
    brokers.maps = [LACKS]
    with pytest.raises(UnknownPartitionError, match="there is no topic 't'"):
        bounds.survey(options_of(is_strict=True))
    with pytest.raises(UnknownPartitionError):
        bounds.look([KEY], options_of(is_strict=True))
    assert bounds.look([KEY], options_of(is_strict=False)) == {}


def test_regression_a_missing_topic_needs_brokers_with_a_controller(
    brokers: Brokers, is_strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a controller, no topic counts as deleted: the read fails, and can be repeated."""
    for name in ("MISSING_SECONDS", "SECONDS_MAX"):
        monkeypatch.setattr(bounds, name, SHORT)
    brokers.maps = [LACKS._replace(is_certain=False)]
    for ask in (
        bounds.survey,
        lambda options: bounds.look([KEY], options),
    ):
        with pytest.raises(NotKnownYetError):
            ask(options_of(is_strict))


# --- streams --------------------------------------------------------------------------------------


def test_regression_a_stream_does_not_go_back(
    brokers: Brokers, is_strict: bool, ranges: list[tuple[int, int]]
) -> None:
    """An old leader answers once with a lower high watermark; then the new leader answers."""
    reader, start = StreamReader(options_of(is_strict)), at(60)
    brokers.ends[2] = 100
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.partitions(start, end)
    # The stream now asks with the old map, and the old leader accepts its own epoch.
    brokers.maps, brokers.ends[2] = [map_of(1, 5), map_of(1, 5), LEADS], 120
    last = reader.latestOffset(end, ReadAllAvailable())
    reader.partitions(end, last)
    assert ranges == [(60, 100), (100, 120)]


def test_regression_a_planned_range_is_not_skipped(
    brokers: Brokers, is_strict: bool, ranges: list[tuple[int, int]]
) -> None:
    """A broker that knows no topic for a moment answers when the batch is planned."""
    reader, start = StreamReader(options_of(is_strict)), at(60)
    end = reader.latestOffset(start, ReadAllAvailable())
    brokers.maps = [LACKS, LACKS, LEADS]
    reader.partitions(start, end)
    assert ranges == [(60, 120)]


def test_a_stream_goes_back_only_after_a_loss(
    brokers: Brokers, ranges: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the log stays too short, strict streams fail, and others go on from its end."""
    monkeypatch.setattr(bounds, "OLD_LEADER_SECONDS", SHORT)
    with pytest.raises(OffsetOutOfRangeError):
        StreamReader(options_of(True)).latestOffset(at(130), ReadAllAvailable())
    reader = StreamReader(options_of(False))
    end = reader.latestOffset(at(130), ReadAllAvailable())
    assert end == at(120)
    brokers.ends[2] = 125
    last = reader.latestOffset(end, ReadAllAvailable())
    reader.partitions(end, last)
    assert ranges == [(120, 125)]


def test_a_topic_that_was_created_again_may_be_shorter(
    brokers: Brokers, ranges: list[tuple[int, int]]
) -> None:
    """Its end is not compared with the offset in the old topic, so nothing waits."""
    reader = StreamReader(options_of(False))
    start = at(130, OTHER_ID)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == at(120)
    reader.partitions(start, end)
    assert ranges == [(0, 120)]


def test_a_deleted_topic_does_not_delay_each_batch(brokers: Brokers) -> None:
    """A lax stream asks for no partition from which it reads nothing."""
    brokers.maps = [LACKS]
    assert StreamReader(options_of(False)).partitions(at(60), at(60)) == []
    assert brokers.asked == []


# --- tasks ----------------------------------------------------------------------------------------


def reading(is_strict: bool) -> LeaderReading:
    """Make the reading of offsets 90 to 100."""
    piece = ClusterPiece("t", 0, ID, 90, 100, (), False, "b:1,b:2")
    return LeaderReading(piece, options_of(is_strict), 90)


def test_regression_a_task_does_not_believe_an_old_leader(
    brokers: Brokers, is_strict: bool
) -> None:
    """The old leader has fewer records. The task asks again, and finds the new leader."""
    brokers.maps = [map_of(1, 5)] * 3 + [LEADS]
    found = reading(is_strict)
    assert list(found.batches()) == []
    assert found.offset == 100
    assert brokers.asked[0] == 5
    assert brokers.asked[-1] == 6


def test_a_task_skips_the_end_only_if_it_stays_lost(
    brokers: Brokers, is_strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A strict read fails; another read continues without the records."""
    monkeypatch.setattr(bounds, "OLD_LEADER_SECONDS", SHORT)
    brokers.ends[2] = 80
    found = reading(is_strict)
    if is_strict:
        with pytest.raises(OffsetOutOfRangeError):
            list(found.batches())
    else:
        assert list(found.batches()) == []
    assert found.offset == (90 if is_strict else 100)


def test_regression_a_task_asks_again_for_a_missing_topic(
    brokers: Brokers, is_strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic counts as deleted only if no broker has it for some seconds."""
    brokers.maps = [LACKS, LACKS, LEADS]
    found = reading(is_strict)
    assert list(found.batches()) == []
    assert brokers.asked
    monkeypatch.setattr(bounds, "MISSING_SECONDS", SHORT)
    brokers.maps, brokers.asked = [LACKS], []
    found = reading(is_strict)
    if is_strict:
        with pytest.raises(TopicGoneError, match="the topic was deleted"):
            list(found.batches())
    else:
        assert list(found.batches()) == []
    assert not brokers.asked


def test_known_offsets_of_another_topic_do_not_count(brokers: Brokers) -> None:
    """`look` compares the topic ids, too."""
    known = Reached({KEY: 500}, {KEY: short_id(OTHER_ID)})
    assert bounds.look([KEY], options_of(True), known)[KEY].end == 120


def test_a_task_does_not_read_a_topic_that_was_created_again(
    brokers: Brokers, is_strict: bool
) -> None:
    """The new topic is shorter, so the leader refuses the offset."""
    brokers.maps, brokers.ends[2] = [LEADS, map_of(2, 6, OTHER_ID)], 80
    found = reading(is_strict)
    if is_strict:
        with pytest.raises(TopicGoneError, match="created again"):
            list(found.batches())
    else:
        assert list(found.batches()) == []
