"""Kafka 4.1's own command-line tools: they print for this cluster what they print for Kafka's.

Both clusters have three brokers with two log dirs each. Brokers are killed, and log dirs fail, in
both clusters alike (KIP-112); replicas move between brokers and between log dirs (KIP-113). One
script of calls runs against each cluster, and the outputs are compared line by line. With
LOGSTORE_CLIENTS=kafka, Kafka is compared with itself: that shows that nothing else varies.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import confluent_kafka
import pytest

from support.client_programs import WHICH, demand_java
from support.kafka_tools import Toolbox, own_process
from support.kafka_tools.cluster_files import FILES
from support.kafka_tools.clusters import BROKERS, ClusterServer, KafkaCluster, OwnCluster
from support.kafka_tools.comparing import NO_APIS, Difference, Pair, calls_of, missing_apis
from support.places import fast_directory

pytestmark = pytest.mark.timeout(900)  # the first test also starts five Java processes
RECORDS = 600
PRODUCER = ["--max-messages", str(RECORDS), "--throughput", "100", "--acks", "-1"]
CONSUMER = ["--group-id", "life", "--reset-policy", "earliest", "--verbose"]
RESET = "kafka-consumer-groups --reset-offsets --group of-{} --topic apart --to-offset 0 --execute"
PREFERRED = "kafka-leader-election --election-type preferred --all-topic-partitions"
UNDER_REPLICATED = "kafka-topics --describe --under-replicated-partitions"
SECONDS = 60.0

SCRIPTS = Path(__file__).parent / "tools" / "cluster"  # one call a line
# The script of the transactions needs producers that are not tools.
NAMES = sorted({path.stem for path in SCRIPTS.glob("*.txt")} - {"transactions"})

WORDS = "each says in its own words what is wrong"
RANDOM = "the first replicas of a topic are chosen at random"
NUMBERS = "coordinators, ids and times are other ones in each cluster"
DEAD = "a broker that is dead gets no new replicas"
ELR = "Kafka fixes min.insync.replicas, by which its controllers find who may lead (KIP-966)"
ORDER = "the preferred leader remains until the reassignment ends"
BACK = "a cancelled reassignment ends in the original order of the replicas"
SUSPECTS = "the last column has the suspects, and not the last known leader"


def both(call: str, pattern: str, why: str) -> Difference:
    """Make a difference whose patterns are the same, as both clusters choose freely."""
    return Difference(call, pattern, pattern, why)


# Each is a pair of patterns that are found in the outputs of the call, which is a pattern, too.
LED = r"Leader: \d\tReplicas: .*\tIsr: .*?\t"
TOPIC = "--describe --entity-type topics --entity-name "
# A coordinator, a producer id, and two times.
IDS = (
    r"(?m)^\d +\t(?=id-)|(?<=id-open        |id-ended       )\t\d+ +"
    r"|\t\d{13} +\t\d+ +|\tNone +\tNone +"
)
DEFAULT = "DEFAULT_CONFIG:min.insync.replicas="
DIFFERENCES = [
    # topics
    both("--topic (spread|default)$", LED, RANDOM),
    both("Partition. 3: .*--topic u", r"(?<=Partition: [23]\t)" + LED,
         "new partitions continue the order of the leaders"),
    Difference("--replication-factor 4", "the replication factor is 4, but only 3 brokers.*",
               r"Unable to replicate the partition 4 time\(s\).*", WORDS),
    Difference("--replica-assignment (1:9|.*1:2:9)$", "partition . is assigned to brokers .*",
               "The manual partition assignment includes broker 9, .*", WORDS),
    Difference("--partitions 6 --replica-assignment 1:2:3$", "1 partitions are to be added, .*",
               r"Attempted to add 1 additional partition\(s\), .*", WORDS),
    Difference("--alter --topic t --partitions 4", "the topic has 5 partitions; the new .*",
               r"The topic t currently has 5 partition\(s\); 4 would not be .*", WORDS),
    # broker_dies, dir_fails
    both("--describe (--topic q|--un(available|der-(replicated|min-isr))-partitions)$",
         r"(?<=Isr: \tElr: .\t)LastKnown.*", SUSPECTS),
    both("until Leader. none: ", r"(?<=Isr: \tElr: 2\t)LastKnown.*", SUSPECTS),
    both("until Leader. 3: .*--topic z", r"(?<=Isr: 3\t)Elr: .*", SUSPECTS),
    Difference("--create --topic three --", "(?s)exit 1.*(not|only 2 brokers are) registered.*",
               r"(?s)exit 0\nCreated topic three.*", DEAD),
    Difference("preferred --topic (t --partition 2|[lqz] --partition 0)",
               "the broker is not in the ISR, .*",
               "The preferred leader was not available.", WORDS),
    Difference("unclean --topic [wq]", "no replica has answered, or .*",
               "Eligible topic partition leaders are not available.", WORDS),
    # reassignments, dir_moves
    both("--generate .*topics.json --broker-list 1,2", r"(?<=configuration\n).*", RANDOM),
    Difference(TOPIC + "[crsd]$", f"STATIC_BROKER_CONFIG:min.insync.replicas=2, {DEFAULT}.",
               f"DYNAMIC_DEFAULT_BROKER_CONFIG:min.*{DEFAULT}1", ELR),
    Difference("--describe --topic c$", "  min.insync.replicas=2 .*\\n", r"(?<=are:\n)",
               "each topic has a min.insync.replicas of its own"),
    Difference("--entity-type brokers$|--describe .*--entity-default", "(?<=cluster are:\n)",
               r"(?<=cluster are:\n)  min.insync.replicas=2 .*\n", ELR),
    both("until (Adding|adding)", r"(?i)(?<=replicas: )\d,\d(,\d)?(?=\tIsr|\. adding)", ORDER),
    both("--additional --throttle 100000000", r'"replicas":\[.,.,.\]', ORDER),
    both(r"until Replicas. \(", "(?<=Replicas: )...", BACK),
    both("--verify .*d-slow.json --preserve", "(?<=replica set is )...", BACK),
    both("--execute .*--timeout 20000", r'(?<="replicas":\[)...', BACK),
    Difference("x-to-1.json", r"(?s)exit 1.*x-0: there are fewer replicas than min, 2.*",
               "(?s)exit 0.*Successfully started partition reassignment for x-0.*",
               "no partition gets fewer replicas than min.insync.replicas"),
    Difference("--(verify|cancel) .*no-topic.json", "there is no topic 'none'",
               "The topic 'none' does not exist.", WORDS),
    Difference("--throttle 0", "(?s)exit 1.*at a rate of 0, the copying would never end.*",
               "(?s)exit 0.*The inter-broker throttle limit was set to 0 B/s.*",
               "at the rate 0, the copying would never end"),
    both("until isFuture", r'"offsetLag": \S+ "isFuture": true', "each copies at its own pace"),
    # settings
    Difference("--entity-name c --all", "  flush.before.ack=.*\n", "(?=  flush.messages)",
               "Kafka has no such setting"),
    Difference("--entity-name c --all", f"STATIC_BROKER_CONFIG:min.insync.replicas=2, {DEFAULT}.",
               f"DYNAMIC_DEFAULT_BROKER_CONFIG:min.*{DEFAULT}1", ELR),
    Difference("=nonsense", r"(?<=Exception: )leader.*'nonsense' is not of the form.*",
               r"(?<=Exception: )Invalid value \[nonsense\] for .*", WORDS),
    Difference("rate=fast", "InvalidConfigurationException: .*", "InvalidRequestException: .*",
               "a wrong value is a wrong setting, and not a wrong request"),
    Difference("broker.rack=r9", "broker.rack cannot be changed while the broker runs",
               r"Cannot update these configs dynamically: Set\(broker.rack\)", WORDS),
    Difference("--alter --entity-type brokers --entity-default", "(?s)exit 1.*",
               "(?s)exit 0.*", "each broker has settings of its own only"),
    # groups
    both("--all-groups --state", r"<broker (.)>  \(\1\)", RANDOM),
    both("--group g3 --offsets --verbose", "(?<=h               0          ).",
         "the first leader epoch is 1, and in Kafka 0"),
    Difference("--topic g --partition 9", "the partition is not known, or .*",
               "No such partition as g-9", WORDS),
    # transactions
    both("kafka-transactions list --transactional-id-pattern", r"\t\d +\t\d+ +", NUMBERS),
    both("describe --transactional-id id-", IDS, NUMBERS),
    both("describe-producers", r"(?m)^\d+ +|\t\d{13} *", NUMBERS),
    both("describe-producers", r"(?<=\t)\d+ +(?=\t-?\d+ +<)",
         "the epoch of a coordinator is a leader epoch, of which the first is 1"),
    both("--topic __consumer_offsets", "Configs: .*|" + LED, RANDOM),
]  # fmt: skip


@pytest.fixture(scope="module")
def box() -> Iterator[Toolbox]:
    """Start the JVM of the tools."""
    demand_java()
    with closing(Toolbox()) as box:
        yield box


@pytest.fixture(scope="module")
def pair(box: Toolbox) -> Iterator[Pair]:
    """Start this cluster, and one of real Kafka brokers; each test leaves both as they began."""
    with ExitStack() as stack:
        ours_is = KafkaCluster if WHICH == "kafka" else OwnCluster
        ours, kafka = (
            served(stack, kind(stack.enter_context(fast_directory())))
            for kind in (ours_is, KafkaCluster)
        )
        yield Pair(ours, kafka, box, DIFFERENCES, may_ours_lag=True)


def served(stack: ExitStack, server: ClusterServer) -> ClusterServer:
    """End a cluster with the other things of a stack, and give it the files of the scripts."""
    stack.callback(server.close)
    server.write(FILES)
    return server


def test_each_known_difference_is_one_of_some_call() -> None:
    """A difference that is gone fails the script of its call; one without a call fails here."""
    calls = [call for path in SCRIPTS.glob("*.txt") for call in calls_of(path)]
    for known in DIFFERENCES:
        assert any(re.search(known.call, call) for call in calls), known


@pytest.mark.parametrize("script", NAMES)
def test_the_tools_print_the_same(pair: Pair, script: str) -> None:
    """Each script deletes its topics, mends its log dirs, and starts what it killed."""
    pair.compare(SCRIPTS / f"{script}.txt")


def test_all_brokers_have_the_same_apis(pair: Pair) -> None:
    """One broker that lacks an API would be a surprise for the clients that ask it."""
    ours, kafka = (pair.box.call(one, "kafka-broker-api-versions") for one in pair.servers)
    for broker in BROKERS:
        mine, theirs = (said.partition(f"<broker {broker}> ")[2] for said in (ours, kafka))
        assert missing_apis(mine.partition("\n)")[0], theirs.partition("\n)")[0]) == NO_APIS


def test_groups_have_coordinators_on_several_brokers(pair: Pair) -> None:
    """The script of the groups masks the coordinators; here they are told apart."""
    for server in pair.servers:
        pair.box.call(server, PREFERRED)  # after a kill, one broker may lead everything
        pair.box.call(server, "kafka-topics --create --topic apart --replica-assignment 1:2:3")
        for number in range(6):
            pair.box.call(server, RESET.format(number))
        said = pair.box.call(server, "kafka-consumer-groups --describe --all-groups --state")
        assert len(set(re.findall(r"<broker \d>", said))) > 1, said
        groups = " ".join(f"--group of-{number}" for number in range(6))
        pair.box.call(server, f"kafka-consumer-groups --delete {groups}")
        pair.box.call(server, "kafka-topics --delete --topic apart")


def test_programs_outlive_the_leader_of_their_topic(pair: Pair) -> None:
    """A producer and a group continue after the leader was killed; no acknowledged record is lost.

    The producer of the tools never sends a record again, so some records are not acknowledged.
    """
    for server in pair.servers:
        pair.box.call(server, "kafka-topics --create --topic life --replica-assignment 3:1:2")
        with ExitStack() as stack:
            address = ["--bootstrap-server", server.address, "--topic", "life"]
            producer = running(stack, "kafka-verifiable-producer", *address, *PRODUCER)
            consumer = running(stack, "kafka-verifiable-consumer", *address, *CONSUMER)
            events = [next(producer) for _ in range(200)]
            server.change("kill 3")
            acked = values_of([*events, *producer], "producer_send_success")
            assert len(acked) > 200 and str(RECORDS - 1) in acked
            read = set[str]()
            while not acked <= read:
                read |= values_of([next(consumer)], "record_data")
        server.change("start 3")
        pair.box.call(server, r"until exit 0\n\nstderr: " + UNDER_REPLICATED)
        pair.box.call(server, "kafka-topics --delete --topic life")


def values_of(events: list[str], name: str) -> set[str]:
    """Give the values of the records in the events of one name."""
    return {event["value"] for event in map(json.loads, events) if event["name"] == name}


def running(stack: ExitStack, tool: str, *words: str) -> Iterator[str]:
    """Run a tool in a JVM of its own; give the lines that it prints."""
    child = stack.enter_context(
        subprocess.Popen(own_process(tool, *words), stdout=subprocess.PIPE, text=True)
    )
    stack.callback(child.kill)
    assert child.stdout is not None
    return iter(child.stdout)


def test_transactions_are_shown_and_ended(pair: Pair) -> None:
    """One transaction is open, and one has ended; an administrator ends the open one."""
    with ExitStack() as stack:
        for server in pair.servers:
            pair.box.call(server, "kafka-topics --create --topic tx --replica-assignment 2:3:1")
            for name in ("open", "ended"):
                producer = confluent_kafka.Producer(
                    {"bootstrap.servers": server.address, "transactional.id": f"id-{name}"}
                )
                producer.init_transactions(SECONDS)
                producer.begin_transaction()
                producer.produce("tx", b"value", on_delivery=delivered)
                assert producer.flush(SECONDS) == 0
                if name == "ended":
                    producer.commit_transaction(SECONDS)
                stack.callback(producer.purge)
        pair.compare(SCRIPTS / "transactions.txt")


def delivered(error: object, message: object) -> None:
    """Check that a record was acknowledged."""
    assert error is None, message
