"""Kafka 4.1's own command-line tools: they print for this broker what they print for Kafka.

Both servers have three log dirs. One script of calls runs against each of them, and the outputs are
compared line by line; `support.kafka_tools` names what differs between two runs. With
LOGSTORE_CLIENTS=kafka, Kafka is compared with itself: that shows that nothing else varies.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from support.client_programs import WHICH, demand_java, lines_of
from support.kafka_client import KafkaClient
from support.kafka_tools import Server, Toolbox, own_process
from support.kafka_tools.comparing import NO_APIS, Difference, Pair, calls_of, missing_apis

SCRIPTS = Path(__file__).with_name("tools")  # one call a line


WORDS = "each says in its own words what is wrong"
ELR = "Kafka fixes min.insync.replicas, by which its controllers find who may lead (KIP-966)"
# Each is a pair of patterns that are found in the outputs of the call, which is a pattern, too.
DIFFERENCES = [
    Difference(r"--topic one --partitions 3$", "the topic 'one' exists already",
               r"Topic 'one' already exists\.", WORDS),
    Difference("bad/name", "topic 'bad/name' is not a legal name.*",
               "Topic name is invalid: 'bad/name' contains.*", WORDS),
    Difference("two_dots", "the topic 'two.dots' has the same name.*",
               "Topic 'two_dots' collides with existing topic: two.dots", WORDS),
    Difference("--replication-factor 3", "the replication factor is 3, but there is only one.*",
               r"Unable to replicate the partition 3 time\(s\).*", WORDS),
    Difference("--replica-assignment 7", r"each partition is on the brokers \[1\]",
               "The manual partition assignment includes broker 7, .*", WORDS),
    Difference("--alter --topic one --partitions 2",
               "the topic has 5 partitions; the new number must be larger.*",
               "The topic one currently has 5 partition.*", WORDS),
    Difference("retention.mss=", "unknown topic setting 'retention.mss'.*",
               "Unknown topic config name: retention.mss", WORDS),
    Difference("retention.ms=soon", "retention.ms='soon' is not a number",
               "Invalid value soon for configuration retention.ms: .*", WORDS),
    Difference("--entity-name none --add", r"(?<=Exception: )there is no partition none-0.*",
               r"(?<=Exception: )(?=\n|$)", WORDS),
    Difference("--add-config log.dirs", "log.dirs cannot be changed while the broker runs",
               r"Cannot update these configs dynamically: Set\(log.dirs\)", WORDS),
    Difference("--describe --group none", "there is no group 'none'", "Group none not found.",
               WORDS),
    Difference("--partition 9", "there is no such partition", "No such partition as t-9", WORDS),
    Difference("preferred --topic none", "there is no such partition", "No such topic as none",
               WORDS),
    Difference("kafka-topics --describe($| --topic one| --topics-with)", "(?<=Configs: )",
               r"(?<=Configs: )min.insync.replicas=1,?", ELR),
    Difference("topics --entity-name one --all", "(?<=replicas=1 sensitive=false synonyms={)",
               "DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1, ", ELR),
    Difference("--entity-type brokers$|--entity-default", "(?<=cluster are:\n)",
               r"(?<=cluster are:\n)  min.insync.replicas=1 .*\n", ELR),
    Difference("--entity-name 1 --describe", "(?<=are:\n)",
               r"(  (leader|follower)\.replication\.throttled\.rate=1000000 .*\n)+",
               "the throttles between brokers limit nothing, so they are not kept"),
    Difference("--describe --entity-type topics --entity-name m", "(?<=are:\n)",
               r"(  (leader|follower)\.replication\.throttled\.replicas=.*\n)+",
               "the throttles between brokers limit nothing, so they are not kept"),
    Difference("--replica-alter-log-dirs-throttle 0",
               "(?s)exit 1(.*)Error: .* rate of 0, the copying would never end.*",
               "(?s)exit 0(.*)The replica-alter-dir throttle limit was set to 0 B/s.*",
               "at the rate 0, moves would never end"),
    Difference("--topic strict", "(?s)exit 1.* is not supported by this broker, only '1'.*",
               r"(?s)exit 0\nCreated topic strict.*", "with one broker there is one replica"),
    Difference("--entity-type broker-loggers", "(?s)exit 1.*resources of type 8 have no settings.*",
               "(?s)exit 0.*root=ERROR.*", "the levels of loggers are set in the program"),
    Difference("--add-config nonsense=1", "(?s)exit 1.*nonsense cannot be changed.*",
               "(?s)exit 0.*Completed updating config.*", "Kafka keeps settings that nobody knows"),
    Difference("kafka-metadata-quorum", r"(?s)exit 1.*support DESCRIBE_QUORUM.*",
               r"(?s)exit 0\n(ClusterId|NodeId).*", "there is no quorum of controllers"),
    Difference("kafka-features describe", r"(Feature: (group|transaction).version.*Epoch: .*\n)+",
               r"(Feature: .*\n)+", "the other features belong to the quorum of controllers"),
    Difference("kafka-features upgrade --release-version", r"(?s)exit 1.*metadata.version.*",
               r"(?s)exit 0.*was upgraded to.*",
               "the other features belong to the quorum of controllers"),
    Difference("transaction.version=9", r"transaction.version: this broker knows.*",
               r"The update failed for all features since.* update version 9.*", WORDS),
]  # fmt: skip
MOVES = {
    "topics.json": {"topics": [{"topic": "m"}], "version": 1},
    "unknown.json": {"topics": [{"topic": "none"}], "version": 1},
    **{
        f"{name}.json": {
            "version": 1,
            "partitions": [
                {"topic": topic, "partition": number, "replicas": [broker], "log_dirs": [path]}
                for topic, number in partitions
            ],
        }
        for name, partitions, broker, path in [
            ("to0", [("m", 0)], 1, "<dir 0>"), ("to1", [("m", 0)], 1, "<dir 1>"),
            ("to2", [("m", 0)], 1, "<dir 2>"), ("two", [("n", 0), ("n", 1)], 1, "<dir 1>"),
            ("anywhere", [("m", 0)], 1, "any"), ("nowhere", [("m", 0)], 1, "/nowhere"),
            ("broker2", [("m", 0)], 2, "any"), ("partition7", [("m", 7)], 1, "<dir 1>"),
        ]
    },
}  # fmt: skip
RECORDS = {
    f"{name}.json": {
        "version": 1, "partitions": [{"topic": "u", "partition": 0, "offset": offset}]
    }
    for name, offset in [("two", 2), ("too-many", 99), ("all", -1)]
}  # fmt: skip


@pytest.fixture(scope="module")
def box() -> Iterator[Toolbox]:
    """Start the JVM of the tools."""
    demand_java()
    with closing(Toolbox()) as box:
        yield box


@pytest.fixture
def pair(box: Toolbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Start this broker, and a real Kafka."""
    with ExitStack() as stack:
        ours = Server(tmp_path_factory.mktemp("ours"), is_kafka=WHICH == "kafka")
        stack.callback(ours.close)
        kafka = Server(tmp_path_factory.mktemp("kafka"), is_kafka=True)
        stack.callback(kafka.close)
        yield Pair(ours, kafka, box, DIFFERENCES)


def test_each_known_difference_is_one_of_some_call() -> None:
    """A difference that is gone fails the script of its call; one without a call fails here."""
    calls = [call for path in SCRIPTS.glob("*.txt") for call in calls_of(path)]
    for known in DIFFERENCES:
        assert any(re.search(known.call, call) for call in calls), known


def test_topics_are_made_described_changed_and_deleted(pair: Pair) -> None:
    """With the mistakes that Kafka refuses."""
    pair.compare(SCRIPTS / "topics.txt")


def test_settings_of_topics_and_of_the_broker(pair: Pair) -> None:
    """What they are, where each value comes from, and what is refused."""
    pair.compare(SCRIPTS / "settings.txt")


def test_replicas_move_between_log_dirs(pair: Pair) -> None:
    """The tool sees a move that is under way, changed, cancelled, completed."""
    for server in pair.servers:
        server.write(MOVES)
    pair.compare(SCRIPTS / "moves.txt")


def test_records_offsets_and_leaders(pair: Pair) -> None:
    """Records are produced, read and deleted; the segment is one that Kafka's tool can read."""
    for server in pair.servers:
        server.write(RECORDS)
    pair.compare(SCRIPTS / "records.txt")
    dumps = []
    for server in pair.servers:
        (segment,) = server.place.glob("?/u-0/*.log")
        dump = "kafka-dump-log --deep-iteration --print-data-log --files "
        dumps.append(re.sub("<dir .>", "<dir>", pair.box.call(server, dump + str(segment))))
    assert dumps[0] == dumps[1]
    assert "payload: four" in dumps[0]


def test_groups_and_their_offsets(pair: Pair) -> None:
    """Groups are listed, described, reset and deleted."""
    pair.compare(SCRIPTS / "groups.txt")


def test_groups_of_the_new_protocol(pair: Pair) -> None:
    """They are read, listed, described, reset and deleted; Kafka's tool can print their records."""
    pair.compare(SCRIPTS / "new_groups.txt")
    with KafkaClient(pair.servers[0].address) as client:  # the tools match expressions themselves
        client.call(
            "ConsumerGroupHeartbeat", group_id="n", member_id="m", subscribed_topic_regex="u.*",
            rebalance_timeout_ms=1000, topic_partitions=[],
        )  # fmt: skip
    kinds = []
    for server in pair.servers:
        (segment,) = server.place.glob("?/__consumer_offsets-0/*.log")
        dump = f"kafka-dump-log --offsets-decoder --files {segment}"
        said = pair.box.call(server, dump)
        assert "Could not decode" not in said and "unknown" not in said
        kinds.append(set(re.findall(r'"type":"(\d+)"', said)))
    assert kinds[1] >= {"3", "5", "6", "7", "8"}
    assert kinds[0] == kinds[1] | {"16"}


def test_acls(pair: Pair) -> None:
    """They are added, listed, selected and removed."""
    pair.compare(SCRIPTS / "acls.txt")


def test_programs_that_verify_a_broker(pair: Pair) -> None:
    """They print each event; while the consumer runs, the group's tool shows its member."""
    verify(pair, "members", "v", "--group-id", "live", "--reset-policy", "earliest", "--verbose")


def test_a_program_that_verifies_the_new_protocol(pair: Pair) -> None:
    """Its events and what the tools print are the same as with Kafka."""
    verify(
        pair, "new_members", "w", "--group-id", "fresh", "--reset-policy", "earliest", "--verbose",
        "--group-protocol", "consumer",
    )  # fmt: skip


def verify(pair: Pair, script: str, topic: str, *consumer: str) -> None:
    """Run a verifiable producer and consumer, and a script of calls while the consumer runs."""
    runs = []
    with ExitStack() as stack:
        for server in pair.servers:
            address = ["--bootstrap-server", server.address, "--topic", topic]
            producer = ["--max-messages", "20", "--repeating-keys", "3", "--value-prefix", "7"]
            events = lines_of(own_process("kafka-verifiable-producer", *address, *producer))
            words = own_process("kafka-verifiable-consumer", *address, *consumer)
            child = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
            stack.callback(child.kill)
            assert child.stdout is not None
            while '"offsets_committed"' not in events[-1]:
                events.append(child.stdout.readline())
                assert events[-1], events
            runs.append((child, events))
        pair.compare(SCRIPTS / f"{script}.txt")
        for child, events in runs:
            child.terminate()
            events += child.communicate()[0].splitlines()
    named = [
        [server.named(event.rstrip()) for event in events]
        for server, (_, events) in zip(pair.servers, runs, strict=True)
    ]
    assert named[0] == named[1]
    assert len(named[0]) > 45  # 20 records are sent and read, and some events are about partitions


def test_the_apis_that_are_not_there_are_known(pair: Pair) -> None:
    """All others have the versions that Kafka has."""
    ours, kafka = (pair.box.call(one, "kafka-broker-api-versions") for one in pair.servers)
    assert missing_apis(ours, kafka) == NO_APIS
