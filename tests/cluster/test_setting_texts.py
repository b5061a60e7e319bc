"""Test the settings of topics as texts, and how clients change and see them."""

from __future__ import annotations

import pytest

from broker.catalog.admin.topic_admin import NewTopic, TopicRefusedError
from broker.catalog.setting_changes import Change, Operation, replacing
from broker.catalog.settings import InvalidSettingError
from broker.coordination.verbs import Session
from cluster import znodes
from cluster.admin.setting_texts import usable
from cluster.admin.topic_changes import TopicChanges
from logstore import LogConfig
from support.heard import Connect
from support.topic_admins import changes_of, prepare, settings_in

WEEK = str(7 * 24 * 3600 * 1000)


@pytest.fixture
def session(connect: Connect) -> Session:
    session = connect()
    prepare(session, {1: "", 2: "", 3: ""})
    return session


@pytest.fixture
def changes(session: Session) -> TopicChanges:
    return changes_of(session)


def test_settings_change_as_kafka_changes_them(session: Session, changes: TopicChanges) -> None:
    """Set, delete, append, subtract; AlterConfigs resets the others; min always has a value."""
    changes.create(NewTopic("orders", 1, 3, (), [("retention.ms", "1000")]))
    changes.alter("orders", [Change("cleanup.policy", Operation.APPEND, "compact")])
    assert settings_in(session, "orders")["cleanup.policy"] == "delete,compact"
    changes.alter("orders", [Change("cleanup.policy", Operation.SUBTRACT, "delete")])
    assert settings_in(session, "orders")["cleanup.policy"] == "compact"
    changes.alter("orders", [Change("min.insync.replicas", Operation.SET, "1")])
    changes.alter("orders", [Change("retention.ms", Operation.DELETE, None)])
    assert settings_in(session, "orders") == {
        "cleanup.policy": "compact", "min.insync.replicas": "1",
    }  # fmt: skip
    changes.alter("orders", replacing([("flush.messages", "7"), ("flush.before.ack", "true")]))
    assert settings_in(session, "orders")["flush.messages"] == "7"
    assert "cleanup.policy" not in settings_in(session, "orders")
    changes.alter("orders", [Change("min.insync.replicas", Operation.DELETE, None)])
    assert settings_in(session, "orders")["min.insync.replicas"] == "2"


def test_regression_settings_that_contradict_each_other(
    session: Session, changes: TopicChanges
) -> None:
    """A minimum above its maximum was accepted; the topic keeps its settings."""
    low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    with pytest.raises(TopicRefusedError, match="is larger than"):
        changes.create(NewTopic("orders", 1, 3, (), [(low, "6"), (high, "5")]))
    changes.create(NewTopic("orders", 1, 3, (), [(high, "5")]))
    with pytest.raises(InvalidSettingError, match="is larger than"):
        changes.alter("orders", [Change(low, Operation.SET, "6")])
    assert low not in settings_in(session, "orders")
    changes.alter("orders", [Change(high, Operation.DELETE, None), Change(low, 0, "6")])
    with pytest.raises(InvalidSettingError, match="is larger than"):
        changes.alter("orders", [Change(high, Operation.SET, "5")])


@pytest.mark.parametrize(
    "change",
    [
        Change("no.such", Operation.SET, "1"),
        Change("retention.ms", Operation.SET, "soon"),
        Change("retention.ms", Operation.APPEND, "1"),
        Change("retention.ms", 9, "1"),
        Change("min.insync.replicas", Operation.SET, "-1"),
        Change("min.insync.replicas", Operation.APPEND, "1"),
        Change("compression.type", Operation.SET, "none"),
        Change("cleanup.policy", Operation.SUBTRACT, "delete"),
    ],
)
def test_a_refused_setting_changes_nothing(
    session: Session, changes: TopicChanges, change: Change
) -> None:
    """This holds even if another setting of the same request is good."""
    changes.create(NewTopic("orders", 1, 3))
    before = session.zxid()
    with pytest.raises(InvalidSettingError):
        changes.alter("orders", [Change("flush.ms", Operation.SET, "5"), change])
    assert session.zxid() == before


def test_a_bad_setting_in_the_store_stops_no_change(
    session: Session, changes: TopicChanges
) -> None:
    """Another program wrote it; the other settings can be changed and described."""
    changes.create(NewTopic("orders", 1, 3))
    path = znodes.config_path("orders")
    bad = {"retention.ms": "soon", "no.such": "1", "min.insync.replicas": "many"}
    session.set(path, znodes.encode_config(bad))
    changes.alter("orders", [Change("flush.ms", Operation.SET, "5")])
    assert settings_in(session, "orders") == {**bad, "flush.ms": "5"}
    rows = {row.key: row.text for row in changes.settings_of("orders")}
    assert (rows["flush.ms"], rows["retention.ms"]) == ("5", str(7 * 24 * 3600 * 1000))
    assert rows["min.insync.replicas"] == "2"


def test_where_a_setting_comes_from(session: Session) -> None:
    """The source is the topic, the broker's file, or the default, with Kafka's numbers."""
    changes = changes_of(session, min_insync_replicas=1)
    changes.create(NewTopic("orders", 1, 3, (), [("retention.ms", str(7 * 24 * 3600 * 1000))]))
    rows = {row.key: [(one.text, one.source) for one in row.synonyms] for row in
            changes.settings_of("orders")}  # fmt: skip
    assert rows["min.insync.replicas"] == [("1", 1), ("1", 4), ("2", 5)]
    assert rows["retention.ms"][0] == (str(7 * 24 * 3600 * 1000), 1)
    assert rows["unclean.leader.election.enable"] == [("false", 5)]
    assert rows["leader.replication.throttled.replicas"] == []
    changes.alter("orders", [Change("leader.replication.throttled.replicas", Operation.SET, "*")])
    rows = {row.key: [(one.text, one.source) for one in row.synonyms] for row in
            changes.settings_of("orders")}  # fmt: skip
    assert rows["leader.replication.throttled.replicas"] == [("*", 1)]


def test_each_bad_setting_is_left_out_alone() -> None:
    """The good settings are used; each fault is found by its key."""
    defaults = LogConfig(record_format="kafka")
    found = usable({"retention.ms": "5", "no.such": "1", "flush.ms": "-7"}, defaults)
    assert found.config == defaults.replace(retention_ms=5)
    assert found.faults.keys() == {"no.such", "flush.ms"}
