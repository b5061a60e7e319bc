"""Match the names of topics with regular expressions (RE2, as in Kafka).

For every expression, the time that RE2 needs grows linearly with the text. The length of an
expression is bounded, and so is the memory that it may use. `google-re2` is an extra of this
library.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

PATTERN_LETTERS_MAX = 4096
MEMORY_BYTES_MAX = 1 << 20  # the memory of one compiled expression


class PatternError(ValueError):
    """Report an expression that is not valid, too long, too large, or cannot be matched."""


def check(pattern: str) -> None:
    """Raise PatternError if an expression cannot be used."""
    _compiled(pattern)


def match(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that match an expression as a whole.

    Raises:
        PatternError: the expression cannot be used.
    """
    compiled = _compiled(pattern)
    return frozenset(name for name in names if compiled.fullmatch(name) is not None)


@functools.lru_cache(maxsize=64)  # at most 64 MiB
def _compiled(pattern: str) -> Any:
    if len(pattern) > PATTERN_LETTERS_MAX:
        raise PatternError(f"it has {len(pattern)} letters, more than {PATTERN_LETTERS_MAX}")
    try:
        import re2
    except ImportError as error:
        raise PatternError("the broker lacks google-re2, which matches expressions") from error
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        raise PatternError(str(error)) from error
