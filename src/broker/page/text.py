"""Make texts of clients safe to show. A name may contain control characters, or be very long."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

LETTERS_MAX = 120
SIZE_UNITS = (" B", " KiB", " MiB", " GiB", " TiB", " PiB")
RATE_UNITS = ("", " k", " M", " G")
# Categories of characters that change how other text is shown, or that cannot be encoded.
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    """Replace each invisible character by its number, such as \\u202e."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{ord(one):04x}" if unicodedata.category(one) in HIDDEN else one for one in text
    )


def shortened(text: str, letters_max: int = LETTERS_MAX) -> str:
    """Cut a long text, and mark the cut by three dots."""
    text = visible(text)
    return text if len(text) <= letters_max else text[: letters_max - 1] + "…"


def count_text(value: int | None) -> str:
    """Format a number with thousands separators; an unknown number is a dash."""
    return "–" if value is None else f"{value:,}"


def bytes_text(value: float | None) -> str:
    """Format a size with three digits, such as 1.25 MiB; an unknown size is a dash."""
    return "–" if value is None else _scaled(value, 1024, SIZE_UNITS)


def rate_text(value: float) -> str:
    """Format a rate per second with three digits, such as 1.25 k."""
    return _scaled(value, 1000, RATE_UNITS)


def seconds_text(value: float | None) -> str:
    """Format a duration in two units, such as 2 h 5 min; an unknown duration is a dash."""
    if value is None:
        return "–"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.3g} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def _scaled(value: float, step: int, units: Sequence[str]) -> str:
    place = 0
    while value >= 1000 and place < len(units) - 1:
        value /= step
        place += 1
    digits = 0 if value == int(value) or value >= 100 else 2 if value < 10 else 1
    return f"{value:.{digits}f}{units[place]}"
