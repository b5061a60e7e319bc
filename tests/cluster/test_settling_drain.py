"""A drain that sees old metadata does not plan a partition a second time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cluster.tools import drain as module
from cluster.tools.asking import Place
from cluster.tools.drain import Drain, DrainSettings, Look
from cluster.tools.drain_plan import Plan, Reassigning

PLACE = ("orders", 0)
MOVE = Reassigning(PLACE, (3, 2), (4, 2), 1, False)


class Asked:
    """Note what is reassigned; every request is accepted."""

    def __init__(self) -> None:
        self.wanted: list[dict[Place, Any]] = []

    def reassign(self, metadata: Any, wanted: dict[Place, Any]) -> dict[Place, Any]:
        self.wanted.append(dict(wanted))
        return {}


def seen(*replicas: int) -> Look:
    """Describe a look at which no reassignment runs; without replicas, the drain is complete."""
    row = SimpleNamespace(replica_nodes=list(replicas))
    metadata = SimpleNamespace(brokers=[], topics=[])
    return Look(metadata, {}, {PLACE: row} if replicas else {})


def test_regression_old_metadata_gives_no_partition_another_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The list with the old and the new replicas was the base of the next plan."""
    looks = iter([seen(3, 2), seen(4, 2, 3), seen(4, 2, 3), seen()])
    monkeypatch.setattr(module, "look", lambda *_: next(looks))
    monkeypatch.setattr(module, "plan_now", lambda *_: Plan((MOVE,), {}))
    asked: Any = Asked()
    lines: list[str] = []
    settings = DrainSettings(frozenset({3}), 5, 0.0)
    Drain(asked, settings, lines.append, sleep=lambda _: None).run()
    assert asked.wanted == [{PLACE: (4, 2)}]
    assert lines == ["orders-0: begun, 3,2 -> 4,2", "orders-0: done, 3,2 -> 4,2; 0 left"]


def test_a_cancelled_reassignment_is_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some time later, because the metadata may only be late."""
    now = [0.0]

    def sleep(_: float) -> None:
        now[0] += module.STALE_SECONDS_MAX

    looks = iter([seen(3, 2), seen(4, 2, 3), seen(3, 2), seen()])
    monkeypatch.setattr(module, "look", lambda *_: next(looks))
    monkeypatch.setattr(module, "plan_now", lambda *_: Plan((MOVE,), {}))
    asked: Any = Asked()
    settings = DrainSettings(frozenset({3}), 5, 0.0)
    Drain(asked, settings, print, sleep, lambda: now[0]).run()
    assert asked.wanted == [{PLACE: (4, 2)}, {PLACE: (4, 2)}]
