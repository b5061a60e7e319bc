"""Test that a change of a role wakes exactly the requests at its partition."""

from __future__ import annotations

from functools import partial

from cluster.serve.role_watches import RoleWatch, RoleWatches


class Other:
    """Counts how often it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_those_at_the_partition_are_woken() -> None:
    """Each of them is woken until it is closed; then nothing of it is kept."""
    watches, woken, other = RoleWatches(), list[str](), Other()
    first = watches.add(("t", 0), lambda: woken.append("first"), other)
    second = watches.add(("t", 0), lambda: woken.append("second"), None)
    watches.add(("t", 1), lambda: woken.append("third"), None)
    assert watches.count == 2
    watches.changed(("t", 0))
    assert sorted(woken) == ["first", "second"]
    first.close()
    first.close()
    assert other.closed == 2
    watches.changed(("t", 0))
    assert sorted(woken) == ["first", "second", "second"]
    second.close()
    watches.changed(("t", 0))
    watches.changed(("u", 0))
    assert len(woken) == 3 and watches.count == 1


def test_a_watch_may_be_closed_by_its_own_call() -> None:
    """The other watches are still called."""
    watches, woken, made = RoleWatches(), list[int](), list[RoleWatch]()

    def wake(at: int) -> None:
        woken.append(at)
        for one in made:
            one.close()

    made += [watches.add(("t", 0), partial(wake, at), None) for at in range(3)]
    watches.changed(("t", 0))
    assert sorted(woken) == [0, 1, 2] and watches.count == 0
