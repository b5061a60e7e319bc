"""Test the regular expressions of subscriptions."""

from __future__ import annotations

import sys

import pytest

from broker.consumer_groups import patterns
from broker.consumer_groups.patterns import PATTERN_LETTERS_MAX, PatternError


def test_an_expression_matches_whole_names() -> None:
    """As in Kafka, a match of a part of a name is not enough."""
    names = ["ab", "ba", "a", "xa"]
    assert patterns.match("a.*", names) == {"ab", "a"}
    assert patterns.match("", names) == frozenset()
    assert patterns.match("b|a", names) == {"a"}


@pytest.mark.parametrize(
    "pattern", ["(", "(?=a)", "a" * (PATTERN_LETTERS_MAX + 1), "((a{100}){100}){100}", "\ud800"]
)
def test_a_bad_expression_is_refused(pattern: str) -> None:
    """The expression is not valid in RE2, too long, or too large."""
    with pytest.raises(PatternError):
        patterns.check(pattern)


def test_a_nasty_expression_takes_no_time() -> None:
    """Python's own `re` would need years for this expression."""
    assert patterns.match("(a*)*b", ["a" * 249] * 100) == frozenset()


def test_without_the_library_expressions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library `google-re2` is an extra."""
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(PatternError, match="google-re2"):
        patterns.check("not-seen-before.*")
