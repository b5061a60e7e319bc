r"""Read the text of Java's properties files, as `java.util.Properties.load` does.

    line       "key=value", "key:value" or "key value"; blanks around the separator do not count
    comment    a line whose first character other than a blank is # or !
    \ at end   the next line continues this one; its leading blanks do not count
    escapes \t \n \r \f \uXXXX; any other escaped character means itself key twice the last value
    counts

A blank is a space, a tab or a form feed. Blanks at the end of a value belong to the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

NATURAL_LINE = re.compile(r"\r\n|\r|\n")
BLANKS = " \t\f"
# The key ends at the first separator that is not escaped.
PARTS = re.compile(
    r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(?P<value>.*)", re.DOTALL
)
ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    r"""Read keys and values.

    A file that is not valid UTF-8 is read as ISO-8859-1. Java reads every file as ISO-8859-1. Java
    gives another result only if the file has characters above 127.

    Raises:
        ValueError: after `\u`, four hexadecimal digits are missing, or the escape is only one half
            of a surrogate pair.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = PARTS.fullmatch(line)
        assert match is not None, line  # any text matches
        found[_plain(match["key"], number)] = _plain(match["value"], number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Skip comments and join continued lines. Yield each result with its first line number."""
    line, first = "", 0
    for number, natural in enumerate(NATURAL_LINE.split(text), 1):
        part = natural.lstrip(BLANKS)
        if not line:
            first = number
            if part[:1] in ("#", "!"):
                continue
        if _is_continued(part):
            line += part[:-1]
            continue
        line += part
        if line:
            yield first, line
        line = ""
    if line:
        yield first, line


def _is_continued(part: str) -> bool:
    """Report whether a line ends with an odd number of backslashes."""
    return (len(part) - len(part.rstrip("\\"))) % 2 == 1


def _plain(text: str, number: int) -> str:
    """Replace the escapes of a key or a value."""

    def replaced(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise ValueError(rf"line {number}: four hexadecimal digits must follow \u")
        return LETTERS.get(escaped, escaped)

    plain = ESCAPE.sub(replaced, text)
    try:  # a character above U+FFFF is written as two escapes
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError(rf"line {number}: a \u escape is half of a character") from error
