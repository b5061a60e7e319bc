"""Work out on paper what the decisions of a table come to in one of the cases."""

from __future__ import annotations

from collections.abc import Callable

from logstore.log.metadata import CAUGHT_UP, COPYING, MoveRecord, Moving, Superseded
from logstore.store.start.startup_table import Act, Decision, ReplicaFacts
from startup.cases import Case, Outcome, live_copies

NAMED, OTHER = "a" * 32, "b" * 32
SERVED = {Act.OPEN: "whole", Act.COMPLETE: "whole", Act.INCOMPLETE: "incomplete"}
SERVED |= {Act.OFFLINE: "offline"}


def facts_of(case: Case) -> list[ReplicaFacts]:
    """Give the facts of a case."""
    facts = []
    for disk, (topic_id, generation) in live_copies(case).items():
        moving = Moving(NAMED, "id 1") if case.live == "names the move" else None
        live = ReplicaFacts(f"/{disk}", "orders-0", "orders", 0, "live", topic_id)
        facts.append(live._replace(generation=generation, moving=moving, end_offset=10))
    if case.move != "none":
        move_id = OTHER if case.move == "of another move" else NAMED
        move = ReplicaFacts("/1", f"orders-0.{move_id}.move", "orders", 0, "move")
        state = COPYING if case.move == "copying" else CAUGHT_UP
        record = MoveRecord(move_id, "id 0", state, 10)
        known = move._replace(topic_id="t", generation=2, record=record, end_offset=10)
        facts.append(move._replace(is_empty=True) if case.move == "bare" else known)
    if case.delete != "none":
        old = ReplicaFacts("/0", f"orders-0.{'c' * 32}.delete", "orders", 0, "delete")
        if case.delete != "unknown":
            old = old._replace(topic_id="t", generation=1)
        if case.delete == "by the user":
            old = old._replace(is_deleted_by_user=True)
        elif case.delete.startswith("superseded"):
            end_offset = 12 if case.delete.endswith("longer") else 10
            generation = 3 if case.delete.endswith("later") else 2
            superseded_by = Superseded(generation, "id 1")
            old = old._replace(superseded_by=superseded_by, end_offset=end_offset)
        facts.append(old)
    return [one._replace(directory_id=f"id {one.log_dir[1:]}") for one in facts]


def decided(
    case: Case,
    decide: Callable[..., list[Decision]],
    is_covered: Callable[[ReplicaFacts, ReplicaFacts], bool],
) -> Outcome:
    """Work out what a table makes of a case."""
    facts = facts_of(case)
    decisions = decide(facts, is_a_dir_bad=case.is_a_dir_bad)
    left = {(int(one.log_dir[1:]), one.kind) for one in facts}
    served, live, is_resumed = [], None, False
    for decision in decisions:
        first = decision.replicas[0]
        if decision.act in SERVED:
            where = -1 if decision.act is Act.OFFLINE else int(first.log_dir[1:])
            served.append((SERVED[decision.act], where))
            live = first if decision.act in (Act.OPEN, Act.COMPLETE) else None
        if decision.act is Act.COMPLETE:
            left = left - {(int(first.log_dir[1:]), "move")} | {(int(first.log_dir[1:]), "live")}
        elif decision.act is Act.STRAY:
            left = left - {(int(first.log_dir[1:]), "live")} | {(int(first.log_dir[1:]), "stray")}
        elif decision.act is Act.PURGE:
            left -= {(int(one.log_dir[1:]), one.kind) for one in decision.replicas}
        elif decision.act is Act.PURGE_COVERED and live is not None and is_covered(first, live):
            left -= {(int(first.log_dir[1:]), "delete")}
        is_resumed |= decision.act is Act.RESUME
    state, where = served[0] if len(served) == 1 else ("gone" if not served else "several", -1)
    return Outcome(state, where, frozenset(left), is_resumed)
