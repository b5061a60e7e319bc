"""Change or drop each rule of the start-up table in turn, in a copy of its source."""

from __future__ import annotations

import inspect
import sys
import types
from typing import NamedTuple

from logstore.store.start import startup_table


class Mutant(NamedTuple):
    """One rule changed: a piece of the source and what stands there instead."""

    name: str
    old: str
    new: str


MUTANTS = (
    Mutant("a caught-up mark is not asked for", "and move.is_caught_up\n", "and True\n"),
    Mutant(
        "a .move is completed without a .delete that names it",
        "any(_is_swapped(move, old) for old in known)",
        'move.kind == "move" and move.is_caught_up',
    ),
    Mutant(
        "the generation in a .delete is not compared",
        "old.superseded_by == Superseded(move.generation, move.directory_id)",
        "old.superseded_by is not None and old.superseded_by[1] == move.directory_id",
    ),
    Mutant(
        "an unfinished .move is renamed to live",
        "    if not whole:\n        reason = _what_is_missing",
        "    if False:\n        reason = _what_is_missing",
    ),
    Mutant(
        "a copy that may lack records is opened as whole",
        "Decision(Act.INCOMPLETE, key, (best, *rest), reason)",
        "Decision(Act.COMPLETE, key, (best,), reason)",
    ),
    Mutant(
        "what is bad is not asked without a live copy", "    if is_a_dir_bad:\n", "    if False:\n"
    ),
    Mutant(
        "a deletion is purged while a dir is bad",
        "    if doomed and is_a_dir_bad:\n",
        "    if False:\n",
    ),
    Mutant("a deletion goes first", "(*dead, *deletions)", "(*deletions, *dead)"),
    Mutant(
        "a deletion does not cover other copies",
        "dead = [facts for facts in dirs if _is_dead(facts, deletions)]",
        "dead: list[ReplicaFacts] = []",
    ),
    Mutant(
        "a deletion covers every topic of that name",
        "        deletion.topic_id == facts.topic_id\n        and",
        "        True\n        and",
    ),
    Mutant(
        "every .move beside live is resumed",
        "and _names(top.moving, facts):",
        "and True:",
    ),
    Mutant(
        "any named move is resumed",
        "return moving == Moving(move.move_id, move.directory_id)",
        "return moving is not None",
    ),
    Mutant("no move is resumed", "and _names(top.moving, facts):", "and False:"),
    Mutant(
        "a superseded copy goes before it is covered",
        "Decision(Act.PURGE_COVERED, key, (facts,), reason)",
        "Decision(Act.PURGE, key, (facts,), reason)",
    ),
    Mutant(
        "a shorter live copy covers",
        "        and live.end_offset >= old.end_offset >= 0\n",
        "",
    ),
    Mutant(
        "a live copy of an older generation covers",
        "        and live.generation >= old.superseded_by.generation\n",
        "",
    ),
    Mutant(
        "the lowest generation opens",
        "key=lambda facts: facts.generation, reverse=True)",
        "key=lambda facts: facts.generation)",
    ),
    Mutant(
        "of several live copies the first opens",
        "    if len(live) == 1:\n        return live[0]\n",
        "    return live[0]\n",
    ),
    Mutant(
        "a live copy that was deleted is served",
        'facts.kind == "stray" or not facts.topic_id:',
        'facts.kind in ("stray", "live") or not facts.topic_id:',
    ),
)


def changed_table(mutant: Mutant) -> types.ModuleType:
    """Make the table with one rule changed."""
    source = inspect.getsource(startup_table)
    assert source.count(mutant.old) == 1, mutant.name
    module = types.ModuleType("startup_changed")
    sys.modules["startup_changed"] = module
    code = compile(source.replace(mutant.old, mutant.new), "startup_changed", "exec")
    exec(code, module.__dict__)
    module.__dict__.update(
        Act=startup_table.Act,
        Decision=startup_table.Decision,
        ReplicaFacts=startup_table.ReplicaFacts,
    )
    return module
