"""The options of the source, without Spark."""

from __future__ import annotations

import pickle

import pytest

from logstore import TopicPartition
from logstore.spark.options import EARLIEST, LATEST, Place, read_options


def test_names_are_taken_in_any_case() -> None:
    """Spark hands names over in lower case."""
    options = read_options(
        {"logdirs": "/a, /b", "SUBSCRIBE": "t2,t1", "maxoffsetspertrigger": "10"}, is_stream=True
    )
    assert options.place == Place(("/a", "/b")) and options.topics == ("t1", "t2")
    assert options.offsets_per_trigger_max == 10
    assert options.starting == LATEST and options.fails_on_data_loss


def test_log_dirs_with_commas_are_a_json_list() -> None:
    """A path may hold a comma."""
    options = read_options({"logDirs": '["/a,b", "/c"]', "subscribe": "t"}, is_stream=False)
    assert options.place == Place(("/a,b", "/c")) and options.starting == EARLIEST


def test_a_brokers_dirs_and_its_isolation_levels() -> None:
    """The isolation level is a consumer's option that counts; others of Kafka's do not."""
    given = {"logDirs": "/a", "subscribe": "t", "kafkaLogDirs": "true", "kafka.group.id": "g"}
    options = read_options(given, is_stream=False)
    assert options.place == Place(("/a",), is_kafka=True) and not options.is_committed
    given["kafka.isolation.level"] = "read_committed"
    assert read_options(given, is_stream=True).is_committed


def test_offsets_are_read_as_those_of_kafka() -> None:
    """Each partition has a number of its own; -2 is earliest, -1 latest."""
    options = read_options(
        {
            "logDirs": "/a",
            "assign": '{"t": [1, 0]}',
            "startingOffsets": '{"t": {"0": 5, "1": -2}}',
            "endingOffsetsByTimestamp": '{"t": {"0": 7, "1": 8}}',
        },
        is_stream=False,
    )
    assert options.assigned == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert options.starting == {("t", 0): 5, ("t", 1): EARLIEST}
    assert options.ending_times == {("t", 0): 7, ("t", 1): 8}


def test_rates_and_sizes_are_those_of_kafka() -> None:
    """Each has Kafka's name, form and default."""
    given = {"logDirs": "/a", "subscribePattern": " t.* "}
    options = read_options(given, is_stream=True)
    assert options.pattern == "t.*"
    assert options.offsets_per_trigger_max is options.records_per_piece_max is None
    assert (options.offsets_per_trigger_min, options.trigger_delay_ms_max) == (0, 900_000)
    given |= {"minOffsetsPerTrigger": "5", "maxRecordsPerPartition": "7"}
    for text, milliseconds in (("90", 90), ("2 h", 7_200_000), ("1MIN", 60_000), ("5s", 5000)):
        options = read_options(given | {"maxTriggerDelay": text}, is_stream=True)
        assert options.trigger_delay_ms_max == milliseconds
    assert (options.offsets_per_trigger_min, options.records_per_piece_max) == (5, 7)


def test_a_time_goes_before_offsets_whatever_these_say() -> None:
    """As in Kafka's source, offsets that do not count are not looked at."""
    given = {"logDirs": "/a", "subscribe": "t", "startingOffsets": "latest"}
    given |= {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "LATEST"}
    given |= {"endingOffsets": "earliest", "endingTimestamp": "6"}
    options = read_options(given, is_stream=False)
    assert (options.starting_times, options.ending_times) == (5, 6)
    assert options.is_late_start_latest


def test_options_survive_a_trip_to_another_process() -> None:
    """They are pickled to every task."""
    options = read_options({"logDirs": "/a", "subscribePattern": "t.*"}, is_stream=False)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "set exactly one of the options assign, .*; now set: none"),
        ({"subscribe": "t", "logDir": "/a"}, "did you mean 'logDirs'"),
        ({"subscribe": "t"}, "set the option logDirs"),
        ({"subscribe": " , "}, "subscribe contains no topic"),
        ({"subscribe": "a b"}, "not a legal name"),
        ({"subscribePattern": "("}, "subscribePattern"),
        ({"assign": "[1]"}, "assign must be like"),
        ({"assign": "{}"}, "assign contains no partition"),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": -3}}'}, "-3 of t-0 is less than -2"),
        ({"subscribe": "t", "startingOffsets": "begining"}, "\"latest\", or like .*'earliest'"),
        ({"subscribe": "t", "startingOffsets": "lastest"}, "must be \"earliest\", .*mean 'latest'"),
        ({"subscribe": "t", "endingOffsets": "newest"}, "endingOffsets must be .*mean 'latest'"),
        ({"subscribe": "t", "minPartitions": "0"}, "minPartitions 0 is less than 1"),
        ({"subscribe": "t", "minPartitions": "x"}, "a whole number"),
        ({"subscribePattern": " "}, "subscribePattern is empty"),
        (
            {"subscribe": "t", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            "minOffsetsPerTrigger 6 is more than maxOffsetsPerTrigger 5",
        ),
        ({"subscribe": "t", "maxTriggerDelay": "soon"}, 'maxTriggerDelay must be like "15m"'),
        ({"subscribe": "t", "maxRecordsPerPartition": "0"}, "maxRecordsPerPartition 0 is less"),
        ({"subscribe": "t", "path": "/a"}, "no option 'path'"),
        ({"subscribe": "t", "startingOffsetsByTimestampStrategy": "x"}, '"error" or "latest"'),
        ({"subscribe": "t", "kafka.isolation.level": "committed"}, "is none of"),
        ({"subscribe": "t", "kafkaLogDirs": "yes"}, 'kafkaLogDirs must be "true" or "false"'),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], message: str) -> None:
    """Each mistake has its own message."""
    if "set the option logDirs" not in message:
        given = {"logDirs": "/a", **given}
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace("[", r"\[")):
        read_options(given, is_stream=False)


def test_a_stream_has_no_end() -> None:
    """Options of an end are refused, as by Kafka's source."""
    given = {"logDirs": "/a", "subscribe": "t", "endingOffsets": "latest"}
    with pytest.raises(ValueError, match="a stream has no end: leave out endingOffsets"):
        read_options(given, is_stream=True)


def test_a_cluster_is_named_by_its_brokers() -> None:
    """Under one of two names; the second names of other options count for log dirs, too."""
    options = read_options({"brokers": " b:1,c:2 ", "topic": "t"}, is_stream=False)
    assert (options.brokers, options.topics, options.place) == ("b:1,c:2", ("t",), Place(()))
    assert options.uses_local_replicas and not options.is_committed
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "localReplicas": "false"}
    given |= {"isolationLevel": "read_committed", "columns": "readFrom,offset"}
    options = read_options(given, is_stream=True)
    assert options.brokers == "b:1" and not options.uses_local_replicas
    assert options.is_committed and options.columns == ("readFrom", "offset")
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "logDirs": "/a"}
    assert read_options(given, is_stream=False).brokers == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"brokers": "b:1", "logDirs": "/a"}, "set logDirs or brokers, not both"),
        ({"brokers": "b:1", "kafkaLogDirs": "true"}, "kafkaLogDirs belongs to logDirs"),
        ({"logDirs": "/a", "localReplicas": "false"}, "localReplicas belongs to brokers"),
        ({"brokers": "b:1", "kafka.security.protocol": "SSL"}, "cannot encrypt or log in"),
        ({"brokers": "b:1", "topic": "u"}, "topic and subscribe are the same option"),
        ({"brokers": " "}, "or set brokers to brokers of a cluster"),
    ],
)
def test_options_of_a_cluster_that_contradict(given: dict[str, str], message: str) -> None:
    """Nothing is ignored that a user may count on."""
    with pytest.raises(ValueError, match=message):
        read_options({"subscribe": "t", **given}, is_stream=False)
