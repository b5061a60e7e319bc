"""Which brokers get the replicas of drained brokers."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from cluster.tools.drain_plan import BrokerSpace, DirSpace, Holding, Plan, plan_drain

MIB = 1 << 20
TOTAL = 1000 * MIB
NONE_LEFT = "each live broker has a replica of it already: add a broker"


def space(rack: str = "", *usable_mib: int, stored: int = 0) -> BrokerSpace:
    """A broker with these free MiB in its log dirs."""
    dirs = [
        DirSpace(f"/disk{number}", TOTAL, one * MIB, 0)
        for number, one in enumerate(usable_mib or (900,))
    ]
    return BrokerSpace(rack, tuple(dirs), stored)


def holding(number: int, replicas: tuple[int, ...], mib: int = 1) -> Holding:
    return Holding(("orders", number), replicas, True, mib * MIB)


def planned(
    holdings: list[Holding],
    brokers: Mapping[int, BrokerSpace],
    drained: set[int],
    racks: Mapping[int, str] | None = None,
) -> Plan:
    """Plan; by default, the drained brokers live, and have no rack."""
    known = {one: found.rack for one, found in brokers.items()}
    racks = {**dict.fromkeys(drained, ""), **known} if racks is None else racks
    return plan_drain(holdings, brokers, drained, racks, 0.05)


def wanted(plan: Plan) -> dict[int, tuple[int, ...]]:
    """Return the brokers of each partition."""
    assert not plan.faults, plan.faults
    return {one.place[1]: one.wanted for one in plan.moves}


def test_only_replicas_of_drained_brokers_move() -> None:
    """The new broker takes the place of the drained one in the list."""
    brokers = {one: space() for one in (1, 2, 4)}
    plan = planned([holding(0, (3, 1)), holding(1, (1, 3, 2))], brokers, {3})
    assert wanted(plan) in ({0: (2, 1), 1: (1, 4, 2)}, {0: (4, 1), 1: (1, 4, 2)})
    assert sum(one.bytes_to_copy for one in plan.moves) == 2 * MIB


def test_the_largest_replicas_go_first_to_the_broker_with_the_fewest_bytes() -> None:
    """So the sizes of the brokers come near to each other."""
    brokers = {1: space(stored=10 * MIB), 2: space(), 3: space()}
    holdings = [holding(number, (9,), mib) for number, mib in enumerate((1, 5, 7, 4))]
    assert wanted(planned(holdings, brokers, {9})) == {2: (2,), 1: (3,), 3: (3,), 0: (2,)}


def test_racks_are_kept_apart() -> None:
    """Even if a broker of the same rack is emptier; a plan says if fewer racks are left."""
    brokers = {1: space("a"), 2: space("a"), 4: space("b", stored=500 * MIB)}
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    plan = planned([holding(0, (1, 3))], brokers, {3}, racks)
    assert wanted(plan) == {0: (1, 4)} and not plan.moves[0].is_narrower
    del brokers[4], racks[4]
    plan = planned([holding(0, (1, 3))], brokers, {3}, racks)
    assert wanted(plan) == {0: (1, 2)} and plan.moves[0].is_narrower


def test_a_full_broker_of_another_rack_is_no_reason_to_share_a_rack() -> None:
    """The plan says that there is no room."""
    brokers = {1: space("a"), 2: space("a"), 4: space("b", 50)}
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    (fault,) = planned([holding(0, (1, 3), 10)], brokers, {3}, racks).faults.values()
    assert fault == "orders-0: no broker has room: /disk0 of broker 4 would be too full"


def test_racks_do_not_count_if_a_broker_has_none() -> None:
    """As when topics are created."""
    brokers = {1: space("a"), 2: space("a"), 4: space("", stored=MIB)}
    assert wanted(planned([holding(0, (1, 3))], brokers, {3})) == {0: (1, 2)}


def test_no_log_dir_gets_too_full() -> None:
    """The plan counts what it has placed, and 5 % of each disk stay free."""
    brokers = {1: space("", 80), 2: space("", 900, 49)}
    holdings = [holding(0, (3,), 20), holding(1, (3,), 20)]
    plan = planned(holdings, brokers, {3})
    assert [one.wanted for one in plan.moves] == [(1,)]
    (fault,) = plan.faults.values()
    assert "/disk0 of broker 1 would be too full" in fault
    assert "/disk1 of broker 2 would be too full" in fault


def test_promised_bytes_are_not_free() -> None:
    """They are of replicas that are being copied."""
    full = DirSpace("/disk0", TOTAL, 500 * MIB, 1, promised_bytes=445 * MIB)
    brokers = {1: BrokerSpace("", (full,)), 2: space(stored=900 * MIB)}
    assert wanted(planned([holding(0, (3,), 10)], brokers, {3})) == {0: (2,)}


@pytest.mark.parametrize(
    ("replicas", "drained", "alive", "reason"),
    [
        ((1, 2, 3), {3}, (1, 2), NONE_LEFT),
        ((1, 3), {1, 3}, (2,), NONE_LEFT),
        ((1, 3), {3}, (2, 4), "broker 1 has a replica, and is gone"),
        ((3,), {3}, (), NONE_LEFT),
    ],
)
def test_a_replica_that_cannot_leave_is_named(
    replicas: tuple[int, ...], drained: set[int], alive: tuple[int, ...], reason: str
) -> None:
    """With the reason."""
    plan = planned([holding(0, replicas)], {one: space() for one in alive}, drained)
    assert not plan.moves and reason in plan.faults["orders", 0]


def test_a_partition_without_a_leader_cannot_be_copied() -> None:
    """Nor can one go to a broker whose log dirs are all away."""
    held = holding(0, (3,))._replace(is_led=False)
    assert "nobody leads it" in planned([held], {1: space()}, {3}).faults["orders", 0]
    brokers = {1: BrokerSpace("", ())}
    fault = planned([holding(0, (3,))], brokers, {3}).faults["orders", 0]
    assert "no log dir of broker 1 works" in fault


def test_many_random_clusters() -> None:
    """No plan breaks a promise, and each copies the bytes of the drained replicas, no more."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(200):
        count = rng.randint(3, 8)
        racks = {one: rng.choice("abc") for one in range(count)}
        drained = set(rng.sample(range(count), rng.randint(1, 2)))
        brokers = {
            one: space(racks[one], *(rng.randint(60, 900) for _ in range(rng.randint(1, 3))))
            for one in range(count)
            if one not in drained
        }
        holdings = []
        for number in range(rng.randint(1, 30)):
            replicas = tuple(rng.sample(range(count), rng.randint(1, 3)))
            if drained.intersection(replicas):
                holdings.append(holding(number, replicas, rng.randint(1, 40)))
        plan = planned(holdings, brokers, drained, racks)
        assert len(plan.moves) + len(plan.faults) == len(holdings)
        copied = dict.fromkeys(brokers, 0)
        sizes = {one.place: one for one in holdings}
        for move in plan.moves:
            assert len(set(move.wanted)) == len(move.replicas)
            assert not drained.intersection(move.wanted)
            for before, after in zip(move.replicas, move.wanted, strict=True):
                assert (before == after) != (before in drained)
                if before != after:
                    copied[after] += sizes[move.place].size_bytes
            width = len({racks[one] for one in move.wanted})
            assert move.is_narrower == (width < len({racks[one] for one in move.replicas}))
        for one, stored in copied.items():
            room = sum(each.usable_bytes - 50 * MIB for each in brokers[one].dirs)
            assert stored <= max(room, 0)
