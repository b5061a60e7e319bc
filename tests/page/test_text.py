"""Numbers are easy to read, and texts of clients show what is in them."""

from __future__ import annotations

import pytest

from broker.page.text import (
    bytes_text,
    count_text,
    rate_text,
    seconds_text,
    shortened,
    visible,
)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("orders", "orders"),
        ("größe", "größe"),
        ("\x1b[2J", "\\u001b[2J"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("a\nb\u2028c\x00", "a\\u000ab\\u2028c\\u0000"),
        ("\ud800", "\\ud800"),
    ],
)
def test_hidden_characters_are_seen(text: str, seen: str) -> None:
    """No text can move the cursor, reverse other text, or look like another one."""
    assert visible(text) == seen
    assert seen.encode()


def test_long_texts_are_cut() -> None:
    """The cut is marked, and counts characters as they are shown."""
    assert shortened("x" * 120) == "x" * 120
    assert shortened("x" * 121) == "x" * 119 + "…"
    assert len(shortened("\x00" * 100, 20)) == 20


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "–"), (0, "0 B"), (999, "999 B"), (1000, "0.98 KiB"), (1024, "1 KiB"),
        (1331, "1.30 KiB"), (45 << 30, "45 GiB"), (12.5, "12.5 B"), (3 << 60, "3072 PiB"),
    ],
)  # fmt: skip
def test_sizes(size: float | None, text: str) -> None:
    """Three digits and a unit."""
    assert bytes_text(size) == text


def test_other_numbers() -> None:
    """Rates, counts and durations."""
    assert [rate_text(one) for one in (0, 0.25, 12.34, 1234, 2.5e6, 3e12)] == [
        "0", "0.25", "12.3", "1.23 k", "2.50 M", "3000 G",
    ]  # fmt: skip
    assert [count_text(one) for one in (None, 0, 1234567)] == ["–", "0", "1,234,567"]
    durations = (None, 0.25, 2.5, 75, 7500, 200_000)
    assert [seconds_text(one) for one in durations] == [
        "–", "250 ms", "2.5 s", "1 min 15 s", "2 h 5 min", "2 d 7 h",
    ]  # fmt: skip
