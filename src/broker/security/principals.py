"""Map a certificate to a name, with the rules in `ssl.principal.mapping.rules`.

A rule is `DEFAULT`, or `RULE:pattern/replacement/` with an optional L or U. With L, the result is
in lower case; with U, in upper case. The first rule whose pattern matches the whole name is used.
Commas separate the rules. The name is the subject of the certificate in the layout of RFC 2253,
such as `CN=alice,OU=tests,O=example`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

# The short names of attributes in RFC 2253, by their names in OpenSSL.
SHORT = {
    "commonName": "CN", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "countryName": "C", "streetAddress": "STREET",
    "domainComponent": "DC", "userId": "UID",
}  # fmt: skip
NEEDS_ESCAPE = re.compile(r'([,+"\\<>;])')
RULE = re.compile(r"DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
GROUP = re.compile(r"\$(\d)")
NAME_BYTES_MAX = 4096  # if a subject is longer, no pattern is tried
CASES: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper, "": str}


class Rule(NamedTuple):
    """A pattern and its replacement. A rule without a pattern matches every name."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read the rules. Raises ValueError."""
    rules: list[Rule] = []
    at, text = 0, text.strip() or "DEFAULT"
    while True:
        match = RULE.match(text, at)
        if match is None:
            raise ValueError(f"{text[at : at + 80]!r} is neither DEFAULT nor RULE:pattern/new/[LU]")
        if match[0] == "DEFAULT":
            rules.append(Rule())
        else:
            try:
                pattern = re.compile(match[1].replace("\\/", "/"))
            except re.error as error:
                raise ValueError(f"the pattern {match[1]!r} is wrong: {error}") from error
            rules.append(Rule(pattern, match[2].replace("\\/", "/"), match[3]))
        left = text[match.end() :].lstrip()
        if not left:
            return tuple(rules)
        if not left.startswith(","):
            raise ValueError(f"a comma is missing before {left[:80]!r}")
        at = len(text) - len(left[1:].lstrip())


def principal_of_certificate(certificate: Mapping[str, Any] | None, rules: tuple[Rule, ...]) -> str:
    """Return the name for a verified certificate; "" if no rule matches.

    Args:
        certificate: the result of `SSLObject.getpeercert`; None or empty if the client sent no
            certificate.
    """
    if not certificate:
        return ""
    name = subject_of(certificate)
    if len(name.encode()) > NAME_BYTES_MAX:
        return ""
    for rule in rules:
        if rule.pattern is None:
            return f"User:{name}"
        match = rule.pattern.fullmatch(name)
        if match is not None:
            found = GROUP.sub(partial(_group, match), rule.replacement)
            return f"User:{CASES[rule.case](found)}" if found else ""
    return ""


def _group(match: re.Match[str], reference: re.Match[str]) -> str:
    """Return the part of a name that a reference such as `$1` means."""
    number = int(reference[1])
    return (match[number] or "") if number <= match.re.groups else ""


def subject_of(certificate: Mapping[str, Any]) -> str:
    """Write the subject in the order of RFC 2253. The last part of the name comes first."""
    return ",".join(
        "+".join(f"{SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in relative)
        for relative in reversed(certificate.get("subject", ()))
    )


def _escaped(value: str) -> str:
    text = NEEDS_ESCAPE.sub(r"\\\1", value).replace("\0", "\\00")
    if text[:1] in ("#", " "):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1:
        text = text[:-1] + "\\ "
    return text
