"""Run Kafka 4.1's command-line tools against a broker or a cluster, and name what varies.

A broker is this one or a real Kafka; both read the same server.properties.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from support import kafka_peer
from support.places import environment

HERE = Path(__file__).resolve().parent
SILENT = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
WAIT_SECONDS_MAX = 60.0
# What may be in front of a call: what to wait for.
WAITING = re.compile(r"(?:wait: |until (.+?): )?(kafka-.*)")
TOOLS = "org.apache.kafka.tools"
CLASSES = {
    "kafka-acls": f"{TOOLS}.AclCommand",
    "kafka-broker-api-versions": f"{TOOLS}.BrokerApiVersionsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{TOOLS}.ConsoleProducer",
    "kafka-consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-features": f"{TOOLS}.FeatureCommand",
    "kafka-get-offsets": f"{TOOLS}.GetOffsetShell",
    "kafka-leader-election": f"{TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{TOOLS}.LogDirsCommand",
    "kafka-metadata-quorum": f"{TOOLS}.MetadataQuorumCommand",
    "kafka-producer-perf-test": f"{TOOLS}.ProducerPerformance",
    "kafka-reassign-partitions": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-topics": f"{TOOLS}.TopicCommand",
    "kafka-transactions": f"{TOOLS}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{TOOLS}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{TOOLS}.VerifiableProducer",
}
# What differs between two runs of one server. Sizes depend on how records were batched.
VARYING = [
    (r"\tat .*\n|\t\.\.\. \d+ more\n|\nCaused by: .*", ""),  # the stack of an exception
    (r"TopicId: \S{22}", "TopicId: <id>"),
    (r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "-<uuid>"),
    (r"[\w-]{22} (?=/127)", "<member id> "),  # of the new group protocol
    (r'"size": \d+, "offsetLag": [1-9]\d*', '"size": <size>, "offsetLag": <lag>'),
    (r'"size": [1-9]\d*', '"size": <size>'),
    (r'"timestamp":\d+', '"timestamp":<time>'),
    (r'"avg_throughput":[0-9.E-]+', '"avg_throughput":<rate>'),
    (r"(CreateTime|crc|producerId): \d+", r"\1: <number>"),
    (r"\d+ records sent, .* max latency\.\n", ""),  # a line after each five seconds
    (r"sent, [0-9.]+ records/sec \([0-9.]+ MB/sec\), .*", "sent, <rates>"),
]  # fmt: skip


class NamedServer:
    """A broker or a cluster that is compared with another one, so its own names are replaced."""

    def __init__(self, place: Path, address: str) -> None:
        self.place, self.address = place, address

    def change(self, words: str) -> None:
        """Make a change that a script asks for, such as the kill of a broker."""
        raise NotImplementedError(words)

    def write(self, files: Mapping[str, object]) -> None:
        """Write documents that tools read; a text `<dir 0>` in them is the first log dir."""
        for name, document in files.items():
            (self.place / name).write_text(self.words(json.dumps(document)))

    def words(self, text: str) -> str:
        """Replace names by what they mean for this server."""
        for name, value in self._names().items():
            text = text.replace(name, value)
        return text

    def named(self, text: str) -> str:
        """Replace what two servers cannot have in common by names."""
        text = "\n".join(map(_sorted_dirs, text.split("\n")))
        for name, value in self._names().items():
            text = text.replace(value, name)
        for pattern, name in VARYING:
            text = re.sub(pattern, name, text)
        return re.sub(r"(?<=Isr: )\d+(,\d+)+", _sorted_numbers, text)

    def _names(self) -> dict[str, str]:
        return {"<place>": str(self.place), "<address>": self.address}


class Server(NamedServer):
    """One broker with the number 1, and with three log dirs."""

    def __init__(self, place: Path, *, is_kafka: bool) -> None:
        self.log_dirs = [place / name for name in "abc"]
        # With this setting, each topic would have a setting that is not the default.
        self._kafka = kafka_peer.Broker(
            place,
            self.log_dirs,
            log_segment_delete_delay_ms=None,
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users="User:ANONYMOUS",  # the tools do not authenticate
        )
        self._own: subprocess.Popen[str] | None = None
        super().__init__(place, self._kafka.bootstrap)
        if is_kafka:
            self._kafka.format()
            self._kafka.start()
            return
        words = ["-m", "logstore.cli", "broker", "--config", str(self._kafka.properties)]
        with (place / "broker.err").open("w") as errors:
            self._own = subprocess.Popen(
                [sys.executable, *words],
                stdout=subprocess.PIPE, stderr=errors, env=environment(), text=True,
            )  # fmt: skip
        assert self._own.stdout is not None
        said = self._own.stdout.readline()
        assert said.startswith("serving"), (place / "broker.err").read_text()

    def close(self) -> None:
        """End the broker in order."""
        self._kafka.stop()
        if self._own is not None:
            self._own.terminate()
            self._own.communicate()

    def _names(self) -> dict[str, str]:
        dirs = {f"<dir {number}>": str(path) for number, path in enumerate(self.log_dirs)}
        return dirs | super()._names()


def _sorted_numbers(found: re.Match[str]) -> str:
    """Sort an ISR: its order says who joined when."""
    return ",".join(sorted(found[0].split(",")))


def _sorted_dirs(line: str) -> str:
    """Sort the log dirs, and the partitions in them, that `kafka-log-dirs` prints in any order."""
    if not line.startswith('{"brokers":'):
        return line
    document = json.loads(line)
    document["brokers"].sort(key=lambda one: one["broker"])
    for broker in document["brokers"]:
        broker["logDirs"].sort(key=lambda one: one["logDir"])
        for log_dir in broker["logDirs"]:
            log_dir["partitions"].sort(key=lambda one: (one["partition"], one["isFuture"]))
    return json.dumps(document)


class Toolbox:
    """Talk to a `Toolbox.java`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            kafka_peer.call_of(HERE / "Toolbox.java", more_flags=[SILENT]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def call(self, server: NamedServer, line: str) -> str:
        """Run one tool to its end, and give its exit code and what it printed.

        Args:
            line: the call as users type it, without the address. What follows ` <<< ` is the
                tool's input. With `wait: ` in front, the call is repeated while the tool says that
                something is still in progress; with `until PATTERN: ` in front, it is repeated
                until the output has the pattern.
        """
        call, _, stdin = line.partition(" <<< ")
        waiting = WAITING.fullmatch(call)
        assert waiting is not None, line
        tool, *words = shlex.split(server.words(waiting[2]))
        if f"bootstrap.servers={server.address}" not in words and tool != "kafka-dump-log":
            words = ["--bootstrap-server", server.address, *words]
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        stdin = stdin.replace("\\n", "\n").replace("\\t", "\t")
        while True:
            said = server.named(self._run(tool, words, stdin))
            if waiting[1] is not None:
                is_there = re.search(waiting[1], said) is not None
            else:
                is_there = not call.startswith("wait: ") or "still in progress" not in said
            if is_there:
                return said
            assert time.monotonic() < deadline, f"{line}: {said}"

    def _run(self, tool: str, words: list[str], stdin: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        call = " ".join("." + _encoded(word) for word in (CLASSES[tool], stdin, *words))
        self._process.stdin.write(call + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the JVM of the tools ended in {tool} {words}"
        code, *streams = answer.split()
        out, err = (base64.b64decode(text[1:]).decode() for text in streams)
        return f"exit {code}\n{out}\nstderr\n{err}"

    def close(self) -> None:
        """End the JVM."""
        self._process.kill()
        self._process.communicate()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def own_process(tool: str, *words: str) -> list[str]:
    """Word the call of a tool that needs a JVM of its own."""
    return kafka_peer.call_of(CLASSES[tool], *words, heap="128m", more_flags=[SILENT])
