"""Parse and format values with units: bytes, bytes per second, and durations in ms.

A whole number is used unchanged. A rate or a duration in text needs a unit, because a number alone
could mean any unit. A size in text without a unit is in bytes.
"""

from __future__ import annotations

import re

from logstore.arguments import shown, whole, wrong

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[_letter] = _UNITS[f"{_letter}ib"] = 1024**_power
    _UNITS[f"{_letter}b"] = 1000**_power
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_MS["w"] = 7 * _UNITS_MS["d"]
RATES = "write '50MB/s', '64KiB/s' or '2GiB/s'"
_SIZE = r"\s*([0-9]{1,20})(\.[0-9]{1,20})?\s*([a-zA-Z]*)\s*"


def parse_size(size: int | str, name: str = "") -> int:
    """Parse a size in bytes: a whole number, or text like "64MiB", "1.5GB", "512".

    `KiB`, `MiB`, `GiB`, `TiB` (and `K`, `M`, `G`, `T`) are powers of 1024. `KB`, `MB`, `GB`, `TB`
    are powers of 1000.

    Args:
        name: the name of the argument, for error messages.

    Raises:
        TypeError: the size is neither a whole number nor text.
        ValueError: the text is not a size.
    """
    if not isinstance(size, str):
        if isinstance(size, bool) or not hasattr(type(size), "__index__"):
            raise wrong(name or "a size", "a whole number of bytes or text like '64MiB'", size)
        return whole(size, name or "a size")
    match = re.fullmatch(_SIZE, size)
    unit = _UNITS.get(match[3].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(
            f"{name}{': ' * bool(name)}{shown(size)} is not a size: "
            "write '512', '64KiB', '1.5MB' or '2GiB'"
        )
    if match[2] is None:
        return int(match[1]) * unit
    return round(float(match[1] + match[2]) * unit)


def size_of(size: int | str, name: str) -> int:
    """Parse an argument that is a size, as `parse_size` does; refuse a size below 0."""
    return whole(parse_size(size, name), name, 0)


def parse_rate(rate: int | str, name: str = "") -> int:
    """Parse a rate: a whole number of bytes per second, or text with a unit, like "50MB/s".

    "50MB", "50MBps" and "50 MiB/s" are accepted too. "50Mbps" is refused, because it counts bits.

    Raises:
        ValueError: the text is not a rate, or has no unit ("50" rarely means 50 bytes).
    """
    if not isinstance(rate, str):
        return parse_size(rate, name)
    match = re.fullmatch(_SIZE[:-3] + r"\s*(?:/s|/sec)?\s*", rate)
    unit = re.sub("Bps$", "B", match[3]).lower() if match else ""
    if match is None or unit not in _UNITS:
        raise ValueError(f"{name}{': ' * bool(name)}{shown(rate)} is not a rate: {RATES}")
    number = match[1] + (match[2] or "")
    if not unit and float(number) > 0:
        raise ValueError(
            f"{name}{': ' * bool(name)}{shown(rate)} is a rate without a unit: "
            f"write '{number}MB/s', or '{number}B/s' for bytes per second"
        )
    return parse_size(number + unit, name)


def parse_duration(duration: int | str, name: str = "") -> int:
    """Parse a duration in ms: a whole number, or text with a unit, like "7d", "2h", "500ms".

    Raises:
        TypeError: the duration is neither a whole number nor text.
        ValueError: the text is not a duration, or has no unit.
    """
    if not isinstance(duration, str):
        if isinstance(duration, bool) or not hasattr(type(duration), "__index__"):
            raise wrong(name or "a duration", "a whole number of ms or text like '7d'", duration)
        return whole(duration, name or "a duration")
    match = re.fullmatch(_SIZE, duration)
    unit = _UNITS_MS.get(match[3].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(
            f"{name}{': ' * bool(name)}{shown(duration)} is not a duration: "
            "write '500ms', '30s', '5m', '2h' or '7d'"
        )
    if match[2] is None:
        return int(match[1]) * unit
    return round(float(match[1] + match[2]) * unit)


def format_size(size_bytes: int) -> str:
    """Format a size for people, in powers of 1024."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_count(count: int, noun: str, nouns: str = "") -> str:
    """Format a count with its noun: "1 log", "2 logs", "1,000 logs".

    Args:
        nouns: the plural of the noun; not needed if the plural only adds an s.
    """
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"
