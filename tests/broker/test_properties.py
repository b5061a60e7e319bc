"""Test that properties files are read as Java reads them."""

from __future__ import annotations

import pytest

from broker.properties import parse_properties

# What `java.util.Properties.load` of Java 17 made of each text, in ISO-8859-1; None: an error.
JAVA: list[tuple[str, dict[str, str] | None]] = [
    ("a=b", {"a": "b"}),
    ("a:b", {"a": "b"}),
    ("a b", {"a": "b"}),
    ("a\tb", {"a": "b"}),
    ("a\x0cb", {"a": "b"}),
    ("a = b", {"a": "b"}),
    ("a : b", {"a": "b"}),
    ("a := b", {"a": "= b"}),
    ("a = = b", {"a": "= b"}),
    ("a==b", {"a": "=b"}),
    ("a", {"a": ""}),
    ("a=", {"a": ""}),
    ("=b", {"": "b"}),
    (":b", {"": "b"}),
    (" = b", {"": "b"}),
    ("", {}),
    ("  a=b", {"a": "b"}),
    ("\t\x0c a=b", {"a": "b"}),
    ("a=b  ", {"a": "b  "}),
    ("a=b\t", {"a": "b\t"}),
    ("#a=b", {}),
    ("!a=b", {}),
    ("  # a=b", {}),
    ("  ! a=b", {}),
    ("a#b=c", {"a#b": "c"}),
    ("a!b=c", {"a!b": "c"}),
    ("a=#b", {"a": "#b"}),
    ("a=b\nc=d", {"a": "b", "c": "d"}),
    ("a=b\r\nc=d", {"a": "b", "c": "d"}),
    ("a=b\rc=d", {"a": "b", "c": "d"}),
    ("a=b\n\n\nc=d", {"a": "b", "c": "d"}),
    ("a=1\na=2", {"a": "2"}),
    ("a\\", {"a": ""}),
    ("a=b\\\nc", {"a": "bc"}),
    ("a=b\\\n   c", {"a": "bc"}),
    ("a=b\\\r\n\tc", {"a": "bc"}),
    ("a=b\\\rc", {"a": "bc"}),
    ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
    ("a=b\\\\\\\nc", {"a": "b\\c"}),
    ("a=b\\\n#c", {"a": "b#c"}),
    ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
    ("a=b\\", {"a": "b"}),
    ("a=b\\\\", {"a": "b\\"}),
    ("a\\\n b=c", {"ab": "c"}),
    ("# x\\\na=b", {"a": "b"}),
    ("a=b\\\n", {"a": "b"}),
    ("  \\\n  a=b", {"a": "b"}),
    ("\\\n#a=b", {}),
    ("a=\\\n  b", {"a": "b"}),
    ("a\\=b=c", {"a=b": "c"}),
    ("a\\:b=c", {"a:b": "c"}),
    ("a\\ b=c", {"a b": "c"}),
    ("\\#a=b", {"#a": "b"}),
    ("\\!a=b", {"!a": "b"}),
    ("a=b\\=c", {"a": "b=c"}),
    ("a=\\ b", {"a": " b"}),
    ("a=b\\ ", {"a": "b "}),
    ("a=\\tb\\nc\\rd\\fe", {"a": "\tb\nc\rd\x0ce"}),
    ("a=\\b\\z\\\"\\'", {"a": "bz\"'"}),
    ("a=C:\\\\x\\\\y", {"a": "C:\\x\\y"}),
    ("a=C:\\x", {"a": "C:x"}),
    ("a=\\u0041", {"a": "A"}),
    ("\\u0061=b", {"a": "b"}),
    ("a=\\u00e9", {"a": "é"}),
    ("a=\\u00E9x", {"a": "éx"}),
    ("a=\\uD83D\\uDE00", {"a": "😀"}),
    ("a=\\u12", None),
    ("a=\\uZZZZ", None),
    ("a=\\U0041", {"a": "U0041"}),
    ("a=\\\\u0041", {"a": "\\u0041"}),
    ("a=\\u005cn", {"a": "\\n"}),
    ("a\\u003db=c", {"a=b": "c"}),
    ("a=\\u0020b", {"a": " b"}),
    ("a=é", {"a": "é"}),
    ("é=a", {"é": "a"}),
    ("a=b\x00c", {"a": "b\x00c"}),
    ("a=b=c:d", {"a": "b=c:d"}),
    ("a   b   c", {"a": "b   c"}),
    ("a\x0bb=c", {"a\x0bb": "c"}),
    ("\xa0a=b", {"\xa0a": "b"}),
    ("a=\xa0b", {"a": "\xa0b"}),
    ("a\x85b=c", {"a\x85b": "c"}),
    ("a=b\n\x1cc=d", {"\x1cc": "d", "a": "b"}),
    ("a=b\\ \nc=d", {"a": "b ", "c": "d"}),
    ("a=\\u004\n1", None),
    ("a=b\\\n \\\n c", {"a": "bc"}),
    ("a=\\u00\\\n41", {"a": "A"}),
    ("a=b\\\n\\\nc=d", {"a": "bc=d"}),
    ("a=b\n   ", {"a": "b"}),
    ("\\ a=b", {" a": "b"}),
    ("a\\\\=b", {"a\\": "b"}),
    ("a\\\\\\=b", {"a\\=b": ""}),
]


@pytest.mark.parametrize(("text", "expected"), JAVA)
def test_a_text_means_what_it_means_to_java(text: str, expected: dict[str, str] | None) -> None:
    """Separators, blanks, comments, continued lines and escapes have Java's meaning."""
    data = text.encode("iso-8859-1")
    if expected is None:
        with pytest.raises(ValueError, match=r"line 1: four hexadecimal digits must follow"):
            parse_properties(data)
    else:
        assert parse_properties(data) == expected


def test_text_is_utf8_if_it_can_be() -> None:
    """With or without a byte order mark, a file is UTF-8 if valid, or else ISO-8859-1."""
    for data in ("log.dirs=/data/é€".encode(), "log.dirs=/data/é€".encode("utf-8-sig")):
        assert parse_properties(data) == {"log.dirs": "/data/é€"}
    assert parse_properties("log.dirs=/data/é".encode("iso-8859-1")) == {"log.dirs": "/data/é"}


def test_an_error_names_the_first_line_of_its_key() -> None:
    """Comments, empty lines and continued lines are counted."""
    for text in ("# one\n\na=1,\\\n  2\nb=\\\n\\u12\n", "a=\n\n\n\nb=\\uD83D\n"):
        with pytest.raises(ValueError, match=r"^line 5: "):
            parse_properties(text.encode())
