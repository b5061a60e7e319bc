"""Run a script of calls of Kafka's tools against two servers, and compare what the tools print."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from support.client_programs import WHICH
from support.kafka_tools import NamedServer, Toolbox

READ_AGAIN_SECONDS = 10.0
READS = "describe|--list|--verify|kafka-get-offsets|kafka-broker-api-versions"

# What Kafka announces and this broker does not: the APIs of tokens, of a quorum of controllers, and
# of groups that share partitions.
_NO_APIS = """
    CreateDelegationToken RenewDelegationToken ExpireDelegationToken DescribeDelegationToken
    DescribeQuorum UnregisterBroker AddRaftVoter RemoveRaftVoter
    ShareGroupHeartbeat ShareGroupDescribe ShareFetch ShareAcknowledge InitializeShareGroupState
    ReadShareGroupState WriteShareGroupState DeleteShareGroupState ReadShareGroupStateSummary
    DescribeShareGroupOffsets AlterShareGroupOffsets DeleteShareGroupOffsets
"""
NO_APIS = set[str]() if WHICH == "kafka" else set(_NO_APIS.split())


class Difference(NamedTuple):
    """What this broker and Kafka print differently for a call, and why."""

    call: str
    ours: str
    kafka: str
    why: str


def calls_of(script: Path) -> list[str]:
    """List the calls of a script; a script has one call a line."""
    return [line for line in script.read_text().splitlines() if not line.startswith("#")]


def missing_apis(ours: str, kafka: str) -> set[str]:
    """Name the APIs that only Kafka announces; all others must have the same versions.

    Args:
        ours, kafka: what kafka-broker-api-versions prints of one broker.
    """
    row = re.compile(r"^\t(\w+)\(\d+\): (.*?),?$", re.MULTILINE)
    mine, theirs = (dict(row.findall(said)) for said in (ours, kafka))
    assert len(theirs) > 50
    differing = {name for name in theirs if mine[name] != theirs[name]}
    assert {mine[name] for name in differing} <= {"UNSUPPORTED"}
    return differing


class Pair:
    """Two servers, and the tools that are run against both."""

    def __init__(
        self,
        ours: NamedServer,
        kafka: NamedServer,
        box: Toolbox,
        differences: Sequence[Difference],
        *,
        may_ours_lag: bool = False,
    ) -> None:
        """Run nothing yet.

        Args:
            may_ours_lag: whether our brokers may hear of changes later, as the brokers of a
                cluster do.
        """
        self.servers = (ours, kafka)
        self.box = box
        self._differences = differences
        self._asked_again = (ours, kafka) if may_ours_lag or WHICH == "kafka" else (kafka,)

    def compare(self, script: Path) -> None:
        """Run a script against both, and list all calls whose outputs differ without a reason.

        A line that begins with `* ` is a change that each server makes itself, such as a kill.
        """
        wrong = []
        for call in calls_of(script):
            if call.startswith("* "):
                for server in self.servers:
                    server.change(call.removeprefix("* "))
                continue
            ours, kafka = self.outputs(call)
            if ours != kafka:
                wrong.append("\n".join([f"===== {call}", ours, "----- Kafka:", kafka]))
        assert not wrong, "\n".join(wrong)

    def outputs(self, call: str) -> tuple[str, str]:
        """Run one call against both; give the outputs, without the known differences."""
        found = {server: self.box.call(server, call) for server in self.servers}
        deadline = time.monotonic() + READ_AGAIN_SECONDS
        while True:
            pair = self._alike(call, *found.values())
            if pair[0] == pair[1] or not re.search(READS, call) or time.monotonic() > deadline:
                return pair
            # Brokers hear of changes later, from the controller.
            found |= {server: self.box.call(server, call) for server in self._asked_again}

    def _alike(self, call: str, ours: str, kafka: str) -> tuple[str, str]:
        """Replace known differences, each of which must be there, by the reason for them."""
        for known in self._differences:
            if re.search(known.call, call):
                pattern = known.kafka if WHICH == "kafka" else known.ours
                ours, ours_count = re.subn(pattern, f"<{known.why}>", ours)
                kafka, kafka_count = re.subn(known.kafka, f"<{known.why}>", kafka)
                if not ours_count or not kafka_count:
                    ours += f"not found here: {pattern}" * (not ours_count)
                    kafka += f"not found here: {known.kafka}" * (not kafka_count)
        return ours, kafka
