"""Each row of the tables of broker ids."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.errors import BrokerIdError
from cluster.presence.broker_id import (
    Choice,
    Conflict,
    Found,
    Source,
    choose_id,
    id_of_sequence,
    on_conflict,
    refusal,
)

NEW = Found(None, {"/a": None, "/b": None})


@pytest.mark.parametrize(
    ("changes", "choice"),
    [
        ({"configured": 3}, Choice(Source.CONFIG, 3)),
        ({"configured": 0}, Choice(Source.CONFIG, 0)),
        ({"configured": 3, "dir_ids": {"/a": 3, "/b": 3}}, Choice(Source.CONFIG, 3)),
        ({"configured": 3, "dir_ids": {"/a": 3, "/b": None}}, Choice(Source.CONFIG, 3)),
        ({"configured": 3, "host_id": 4}, Choice(Source.CONFIG, 3)),
        ({"configured": 1001, "dir_ids": {"/a": 1001}}, Choice(Source.CONFIG, 1001)),
        ({"dir_ids": {"/a": 3, "/b": 3}}, Choice(Source.META_PROPERTIES, 3)),
        ({"dir_ids": {"/a": None, "/b": 3}, "host_id": 4}, Choice(Source.META_PROPERTIES, 3)),
        ({"dir_ids": {"/a": 3}, "registered": {3}}, Choice(Source.META_PROPERTIES, 3)),
        ({"host_id": 4}, Choice(Source.HOST, 4)),
        ({"host_id": 4, "registered": {1, 2}}, Choice(Source.HOST, 4)),
        ({"host_id": 4, "registered": {4}}, Choice(Source.SEQUENCE, None)),
        ({}, Choice(Source.SEQUENCE, None)),
        ({"registered": {1, 3}}, Choice(Source.SEQUENCE, None)),
    ],
)
def test_an_id_is_chosen(changes: dict[str, Any], choice: Choice) -> None:
    """Config, else meta.properties, else the host's record, else the sequence.

    The id that is missing among the registered brokers is not taken.
    """
    assert choose_id(NEW._replace(**changes)) == choice


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dir_ids": {"/a": 1, "/b": 2}}, "different brokers: 1 in /a, 2 in /b"),
        ({"configured": 1, "dir_ids": {"/a": 1, "/b": 2}}, "different brokers"),
        ({"configured": 1, "dir_ids": {"/a": 2}}, "broker id is 1, but /a belongs to broker 2"),
        ({"configured": -1}, "the configured broker id is -1, not an integer"),
        ({"configured": 2**31}, "not an integer from 0 to 2147483647"),
        ({"configured": 1001}, "larger than reserved.broker.max.id"),
        ({"dir_ids": {"/a": -5}}, "the broker id in /a is -5"),
        ({"host_id": True}, "the broker id in /brokers/hosts is True"),
    ],
)
def test_ids_that_contradict_are_refused(changes: dict[str, Any], reason: str) -> None:
    """The error names the ids and where they are."""
    with pytest.raises(BrokerIdError) as error:
        choose_id(NEW._replace(**changes))
    assert reason in str(error.value)


def test_the_sequence_begins_after_the_reserved_ids() -> None:
    """An operator can use the ids to 1000, and never gets in the sequence's way."""
    assert (id_of_sequence(1), id_of_sequence(2, reserved_id_max=5)) == (1001, 7)
    for number in (0, 2**31):
        with pytest.raises(BrokerIdError, match="no broker id is left"):
            id_of_sequence(number)


@pytest.mark.parametrize(
    ("has_its_locks", "has_waited", "conflict"),
    [
        (True, False, Conflict.TAKE_OVER),
        (True, True, Conflict.TAKE_OVER),
        (False, False, Conflict.WAIT),
        (False, True, Conflict.REFUSE),
    ],
)
def test_a_registered_id_is_a_conflict(
    has_its_locks: bool, has_waited: bool, conflict: Conflict
) -> None:
    """Only the locks of its log dirs prove that the other process is gone."""
    assert on_conflict(has_its_locks=has_its_locks, has_waited=has_waited) is conflict
    assert "broker id 3 is registered by kafka-3" in str(refusal(3, "kafka-3"))
