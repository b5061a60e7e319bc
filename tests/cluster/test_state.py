"""Test reading and writing the state of a partition, even from damaged JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cluster.errors import BadZnodeError
from cluster.state import State, encode_state, fault_of, parse_state

PATH = "/brokers/topics/orders/partitions/0/state"
GOOD: dict[str, Any] = {
    "version": 1, "leader": 2, "leader_epoch": 7, "controller_epoch": 3, "isr": [2, 3],
    "isr_epochs": {"2": 90, "3": 41}, "elr": {}, "suspects": [], "leader_registration_epoch": 90,
    "replicas": [1, 2, 3], "target": None, "min": 2, "unclean_epoch": -1,
    "flushes": False, "unclean_allowed": False, "lease_kept": False,
    "removed": [], "original": None,
}  # fmt: skip
STATE = State(2, 7, 3, {2: 90, 3: 41}, {}, frozenset(), 90, (1, 2, 3), None, 2)


def parsed(**changes: Any) -> State:
    """Parse the good state with changes."""
    return parse_state(json.dumps({**GOOD, **changes}).encode(), PATH)


def test_a_state_is_read_and_written() -> None:
    """The state equals the document of the design, byte for byte."""
    assert parsed() == STATE
    assert json.loads(encode_state(STATE)) == GOOD
    assert list(json.loads(encode_state(STATE))) == list(GOOD)


def test_unknown_keys_are_ignored() -> None:
    """A later version may add keys."""
    assert parsed(another=[1]) == STATE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "version is 2, but only 1 can be read"),
        ({"leader": "2"}, "leader is 2, not an integer from -1 to 2147483647"),
        ({"leader": True}, "leader is True, not an integer"),
        ({"leader": 1}, "the leader is not in the ISR"),
        ({"leader": -2}, "leader is -2"),
        ({"leader_epoch": -1}, "leader_epoch is -1"),
        ({"leader_epoch": 2**31 - 1}, "leader_epoch is 2147483647, not an integer from 0 to"),
        ({"leader_epoch": 2**31}, "leader_epoch is 2147483648"),
        ({"isr": [2]}, "isr and isr_epochs name different brokers"),
        ({"isr": [2, 2]}, "isr names a broker twice"),
        ({"isr": {"2": 90}}, "isr is not a list"),
        ({"isr_epochs": []}, "isr_epochs is not an object"),
        ({"isr_epochs": {"2": 90, "x": 1}}, "isr_epochs has 'x' in place of a broker id"),
        ({"isr_epochs": {"2": 90, "3": 1.5}}, "isr_epochs is 1.5"),
        ({"isr": [2, 4], "isr_epochs": {"2": 1, "4": 1}}, "the ISR has a broker without a replica"),
        ({"elr": {"1": 5}}, "there are ELR or suspects although the ISR has min members"),
        ({"elr": {"2": 5}, "min": 3}, "ISR, ELR, suspects overlap"),
        ({"elr": {"4": 5}, "min": 3}, "the ELR has a broker without a replica"),
        ({"suspects": [4], "min": 3}, "the suspects have a broker without a replica"),
        ({"replicas": []}, "there are no replicas"),
        ({"target": [4]}, "a bad target"),
        ({"target": []}, "a bad target"),
        ({"min": 0}, "min is 0"),
        ({"flushes": 1}, "flushes is 1, neither true nor false"),
        ({"original": [1]}, "original replicas without a target"),
        ({"target": [1], "original": [4]}, "bad original replicas"),
        ({"removed": [3]}, "a removed broker has a replica"),
        ({"lease_kept": True}, "lease_kept is set without unclean_allowed"),
        ({"unclean_epoch": 8}, "unclean_epoch is after leader_epoch"),
    ],
)
def test_a_bad_state_is_refused(changes: dict[str, Any], reason: str) -> None:
    """The error names the path and the reason."""
    with pytest.raises(
        BadZnodeError, match=r"^/brokers/topics/orders/partitions/0/state: "
    ) as error:
        parsed(**changes)
    assert reason in str(error.value)
    assert error.value.path == PATH


@pytest.mark.parametrize("key", GOOD)
def test_each_key_is_needed(key: str) -> None:
    """A missing key raises an error with its name, never a KeyError."""
    left = {name: value for name, value in GOOD.items() if name != key}
    with pytest.raises(BadZnodeError, match=f"{key} is missing"):
        parse_state(json.dumps(left).encode(), PATH)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    """Any bytes raise the error with the path."""
    with pytest.raises(BadZnodeError, match=PATH):
        parse_state(data, PATH)


def test_regression_a_znode_without_data_is_refused() -> None:
    """The store returns None for its data."""
    with pytest.raises(BadZnodeError, match=f"^{PATH}: has no data"):
        parse_state(None, PATH)


def test_regression_a_leader_has_a_leader_epoch() -> None:
    """In epoch 0 there was no election yet, and no replica would obey."""
    with pytest.raises(BadZnodeError, match="there is a leader without a leader epoch"):
        parsed(leader_epoch=0)
    nobody = {"leader": -1, "leader_registration_epoch": 0}
    assert parsed(leader_epoch=0, **nobody).leader_epoch == 0


json_values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    max_leaves=6,
)


@given(some.dictionaries(some.sampled_from(list(GOOD)), json_values, min_size=1))
def test_any_value_is_read_or_refused(changes: dict[str, Any]) -> None:
    """No JSON breaks the parser; an accepted state is written as it was read."""
    try:
        state = parsed(**changes)
    except BadZnodeError:
        return
    assert fault_of(state) == ""
    assert parse_state(encode_state(state), PATH) == state
