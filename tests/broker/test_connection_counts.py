"""Test the limits of all connections, and of the connections of one address."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from broker.machines.connection_counts import ConnectionCounts

ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "::1"])


@given(st.lists(st.tuples(st.booleans(), ADDRESSES), max_size=60))
def test_both_limits_hold(steps: list[tuple[bool, str]]) -> None:
    """A refused connection is not counted, and the reason names the limit."""
    counts, model = ConnectionCounts(6, 3), Counter[str]()
    for is_new, address in steps:
        if is_new:
            reason = counts.add(address)
            if model.total() >= 6:
                assert "max_connections=6" in reason
            elif model[address] >= 3:
                assert reason.startswith(address) and "max_connections_per_ip=3" in reason
            else:
                assert reason == ""
                model[address] += 1
        elif model[address]:
            counts.remove(address)
            model[address] -= 1
        assert counts.count == model.total()


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_brokers_have_a_limit_of_their_own(steps: list[tuple[bool, bool]]) -> None:
    """Clients take nothing from the limit of brokers, and brokers nothing from clients."""
    counts, model = ConnectionCounts(3, 100), Counter[bool]()
    for is_new, is_peer in steps:
        if is_new:
            reason = counts.add("10.0.0.1", is_peer=is_peer)
            assert bool(reason) is (model[is_peer] >= 3)
            model[is_peer] += not reason
        elif model[is_peer]:
            counts.remove("10.0.0.1", is_peer=is_peer)
            model[is_peer] -= 1
        assert (counts.count, counts.peer_count) == (model[False], model[True])
