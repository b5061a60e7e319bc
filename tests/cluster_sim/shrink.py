"""Make a history that violates something shorter, step by step."""

from __future__ import annotations

from cluster_sim.histories import History, replay
from cluster_sim.steps import Step


def is_same(violation: str, wanted: str) -> bool:
    """Check that two violations are of the same invariant."""
    return (
        bool(violation) and violation.split(" ", maxsplit=1)[0] == wanted.split(" ", maxsplit=1)[0]
    )


def shrink(history: History) -> list[Step]:
    """Leave out steps as long as the same invariant is violated: many at once, then few.

    A step that is not possible any more does nothing, so any part of a history is a history.
    """
    steps = list(history.steps)
    if not is_same(_outcome(history, steps), history.violation):
        return steps
    size = max(1, len(steps) // 2)
    while True:
        start, has_changed = 0, False
        while start < len(steps):
            shorter = steps[:start] + steps[start + size :]
            if is_same(_outcome(history, shorter), history.violation):
                steps, has_changed = shorter, True
            else:
                start += size
        if size == 1 and not has_changed:
            return steps
        size = max(1, size // 2)


def _outcome(history: History, steps: list[Step]) -> str:
    try:
        return replay(history.settings, steps)
    except (LookupError, TypeError):  # a step that makes no sense without an earlier one
        return ""
