"""Test that each API needs its rights, and that nothing is revealed without them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from broker.authorization.binding_filter import BindingFilter
from broker.authorization.bindings import Operation
from broker.requests.access.access_rules import RULES
from broker.requests.dispatcher import HANDLERS
from broker.requests.services import MILESTONES
from broker.wire.schemas import api_names
from broker.wire.versions import ACCEPTED_FROM, ApiVersions
from support.access_probes import (
    CLUSTER,
    FRESH,
    GROUP,
    OTHER_PROBES,
    TOPIC,
    Probe,
    World,
    member_fields,
)
from support.acl_model import IMPLYING
from support.guarded_broker import GuardedBroker, allowing
from support.kafka_client import API_KEYS, KafkaClient, batch_of
from support.source_tree import REPOSITORY
from support.transaction_probes import TRANSACTION_PROBES, begin

PROBES = (*OTHER_PROBES, *TRANSACTION_PROBES)
EVERY = [one for one in Operation if one is not Operation.ANY]
# The requests of a broker are tested in a cluster.
ELSEWHERE = {(1, Operation.CLUSTER_ACTION, CLUSTER)}


class Scene:
    """A broker with a topic and a group, and clients of alice and of the administrator."""

    def __init__(self, broker: GuardedBroker) -> None:
        self.broker = broker
        self.admin = KafkaClient(broker.address("ADMIN"))
        self.alice = KafkaClient(broker.address("ALICE"))
        self.topic_id = self.admin.create("t")
        assert self.admin.produce("t", batch_of(b"VALUE")).error_code == 0
        commit = next(probe for probe in PROBES if probe.api == "OffsetCommit")
        self.admin.call("FindCoordinator", key_type=0, coordinator_keys=["g"])
        fields = commit.fields(World(self.topic_id))
        answer = self.admin.call("OffsetCommit", **fields)
        assert answer.topics[0].partitions[0].error_code == 0
        joined = self.admin.call(
            "ConsumerGroupHeartbeat", **member_fields("n", subscribed_topic_names=["t"])
        )
        assert joined.error_code == 0
        begin(self.admin)
        self._count = 0

    def close(self) -> None:
        """Close the connections."""
        self.admin.socket.close()
        self.alice.socket.close()

    def world(self, probe: Probe) -> World:
        """Make what a probe needs."""
        self._count += 1
        fresh = f"fresh-{self._count}"
        fresh_id = self.admin.create(fresh) if probe.needs_topic else bytes(16)
        return World(self.topic_id, fresh, fresh_id)

    def ask(self, probe: Probe, operation: Operation | None, **changed: Any) -> tuple[World, Any]:
        """Send the request of a probe as alice, with one tested right and all other rights."""
        world = self.world(probe)

        def named(name: str) -> str:
            return world.fresh if name == FRESH else name

        bindings = [allowing(some, kind, named(name)) for some, kind, name in probe.others]
        if operation is not None:
            bindings.append(allowing(operation, probe.kind, named(probe.name))._replace(**changed))
        self.broker.decide_by(*bindings)
        return world, self.alice.call(probe.api, probe.version, **probe.fields(world))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    place, lasting_ms = tmp_path_factory.mktemp("guarded"), 3_600_000
    with GuardedBroker(place, group_consumer_session_timeout_ms=lasting_ms) as broker:
        made = Scene(broker)
        yield made
        made.close()


def test_every_api_has_a_rule_and_probes() -> None:
    """An API without a rule, or without a probe for each of its rights, fails this test."""
    assert RULES.keys() >= HANDLERS.keys()
    assert {API_KEYS[probe.api] for probe in PROBES} == set(HANDLERS)
    probed = {(API_KEYS[one.api], one.operation, one.kind) for one in PROBES if one.operation}
    needed = {(key, one.operation, one.type) for key in HANDLERS for one in RULES[key].rights}
    assert probed | ELSEWHERE == needed


def test_the_manual_has_the_table() -> None:
    """The section "Who may do what" has the table, line by line."""
    text = (REPOSITORY / "docs" / "BROKER.md").read_text(encoding="utf-8")
    section = text.split("\n## Who may do what\n")[1].split("\n## ")[0]
    found = [line for line in section.splitlines() if line.startswith("| ") and "` on " in line]
    wanted = [
        f"| {api_names()[key]} | {'; '.join(map(str, rule.rights))} |"
        for key, rule in RULES.items()
        if rule.rights and key in HANDLERS
    ]
    assert found == wanted


@pytest.mark.parametrize("api", sorted({probe.api for probe in PROBES}))
def test_a_request_needs_its_right_and_no_other(scene: Scene, api: str) -> None:
    """Each operation is granted alone; only the needed one, and those that imply it, suffice."""
    for probe in PROBES:
        if probe.api != api:
            continue
        if probe.operation is None:
            _, answer = scene.ask(probe, None)
            assert not probe.refuses(answer)
            continue
        enough = {
            probe.operation, Operation.ALL, *IMPLYING.get(probe.operation, ()), *probe.also
        }  # fmt: skip
        _, answer = scene.ask(probe, None)
        assert probe.refuses(answer), f"{probe}: no right at all: {answer}"
        for operation in EVERY:
            world, answer = scene.ask(probe, operation)
            is_refused = probe.refuses(answer)
            assert is_refused is (operation not in enough), f"{probe}: {operation}: {answer}"
            known = {probe.name, *(name for _, _, name in probe.others)}
            if is_refused and world.fresh not in repr(probe.fields(world)) and FRESH in known:
                assert probe.needs_topic or world.fresh not in repr(answer)


def test_a_right_is_of_one_client_and_one_resource(scene: Scene) -> None:
    """Rights of another principal, from another host, or to another name are not enough."""
    probe = next(one for one in PROBES if one.api == "ListOffsets")
    right = allowing(Operation.DESCRIBE, TOPIC, "t")
    pattern, entry = right
    for change, is_refused in (
        ({}, False),
        ({"entry": entry._replace(principal="User:bob")}, True),
        ({"entry": entry._replace(host="127.0.0.2")}, True),
        ({"entry": entry._replace(host="127.0.0.1")}, False),
        ({"entry": entry._replace(principal="User:*")}, False),
        ({"pattern": pattern._replace(name="tt")}, True),
        ({"pattern": pattern._replace(name="*")}, False),
        ({"pattern": pattern._replace(type=GROUP)}, True),
    ):
        _, answer = scene.ask(probe, Operation.DESCRIBE, **change)
        assert probe.refuses(answer) is is_refused, change


@pytest.mark.parametrize("key", [key for key in HANDLERS if RULES[key].check])
def test_without_its_check_an_api_refuses_nothing(
    scene: Scene, key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probes notice that a check is missing, so they would notice a new unchecked handler."""
    monkeypatch.setitem(RULES, key, RULES[key]._replace(check=None))
    probes = [one for one in PROBES if API_KEYS[one.api] == key and one.operation]
    found = [probe.refuses(scene.ask(probe, None)[1]) for probe in probes]
    assert not all(found)


def test_an_api_without_a_rule_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of an API without a rule closes its connection, even for a super user."""
    monkeypatch.delitem(RULES, API_KEYS["ListGroups"])
    with KafkaClient(scene.broker.address("ADMIN")) as client:
        client.send("ListGroups")
        assert client.is_closed_by_broker


def secret(scene: Scene) -> dict[str, Any]:
    """Return everything that the administrator can see."""
    admin = scene.admin
    topics = admin.call("Metadata", topics=None).topics
    offsets = next(one for one in PROBES if one.api == "OffsetFetch")
    groups = admin.call("ListGroups").groups
    configs = next(one for one in PROBES if one.api == "DescribeConfigs")
    return {
        "topics": topics,
        "end": admin.fetch("t", 0).high_watermark,
        "offsets": admin.call("OffsetFetch", **offsets.fields(World(scene.topic_id))).groups,
        "groups": groups,
        "configs": admin.call("DescribeConfigs", **configs.fields(World(scene.topic_id))).results,
        "acls": scene.broker.acls.describe(BindingFilter()),
    }


NAMES = re.compile(rb"(?<![a-z0-9_-])(t|g)(?![a-z0-9_-])")


@pytest.mark.parametrize("api", sorted({probe.api for probe in PROBES}))
def test_without_rights_no_version_reveals_or_changes_anything(scene: Scene, api: str) -> None:
    """An answer to a client without rights has no records, and no names except the request's."""
    before = secret(scene)
    row = next(one for one in ApiVersions(MILESTONES).announced if one.key == API_KEYS[api])
    scene.broker.decide_by()
    for probe in [one for one in PROBES if one.api == api]:
        first = max(row.first, ACCEPTED_FROM.get(row.key, 0))
        for version in range(first, row.last + 1):
            fields = probe.fields(World(scene.topic_id, "fresh", scene.topic_id))
            try:
                _, frame = scene.alice.frame(api, version, **fields)
            except ValueError:
                continue  # a version that names topics in another way
            scene.alice.socket.sendall(frame)
            answer = scene.alice.read_frame()
            assert b"VALUE" not in answer, f"{api} {version}"
            for shown in NAMES.findall(answer[4:]):
                asked = NAMES.findall(frame[12:])
                assert shown in asked, f"{api} {version}: {shown!r} in {answer!r}"
    assert secret(scene) == before
