"""Test the mapping of certificates to names: RFC 2253, and the mapping rules."""

from __future__ import annotations

from typing import Any

import pytest

from broker.security.principals import parse_rules, principal_of_certificate, subject_of

CERTIFICATE = {
    "subject": (
        (("countryName", "DE"),), (("organizationName", "Example, Inc."),),
        (("organizationalUnitName", "tests"),), (("commonName", "Alice"),),
    )
}  # fmt: skip
SUBJECT = r"CN=Alice,OU=tests,O=Example\, Inc.,C=DE"


def test_the_subject_begins_with_its_last_part() -> None:
    """Special characters are escaped; several attributes of one part are joined."""
    assert subject_of(CERTIFICATE) == SUBJECT
    parts = {"subject": ((("commonName", " #a+b "), ("userId", "x=y")), (("dnQualifier", "q"),))}
    assert subject_of(parts) == r"dnQualifier=q,CN=\ #a\+b\ +UID=x=y"
    assert subject_of({}) == ""


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("", f"User:{SUBJECT}"),
        ("DEFAULT", f"User:{SUBJECT}"),
        ("RULE:^CN=([^,]+),.*$/$1/", "User:Alice"),
        ("RULE:^CN=([^,]+),.*$/$1/L", "User:alice"),
        ("RULE:CN=(\\w+),OU=(\\w+),.*/$2.$1/U , DEFAULT", "User:TESTS.ALICE"),
        ("RULE:CN=Bob.*/bob/,RULE:CN=Al.*/other/", "User:other"),
        ("RULE:CN=Alice/alice/,DEFAULT", f"User:{SUBJECT}"),  # a rule matches all or nothing
        ("RULE:CN=Alice/alice/", ""),
        ("RULE:CN=(A.*),OU.*/$1$7/", "User:Alice"),
        ("RULE:.*//", ""),
    ],
)
def test_the_first_rule_that_matches_counts(rules: str, principal: str) -> None:
    """If no rule matches, the name is empty."""
    assert principal_of_certificate(CERTIFICATE, parse_rules(rules)) == principal
    assert principal_of_certificate(None, parse_rules(rules)) == ""


@pytest.mark.parametrize(
    "rules", ["default", "RULE:a/b", "RULE:(/b/", "DEFAULT DEFAULT", "DEFAULT,", "RULE:a/b/X"]
)
def test_wrong_rules_are_refused(rules: str) -> None:
    """The error quotes the wrong part."""
    with pytest.raises(ValueError, match=r"RULE|pattern|comma"):
        parse_rules(rules)


def test_a_long_subject_meets_no_pattern() -> None:
    """A client chooses its subject, and a pattern may be slow, so long subjects are not matched."""
    certificate: dict[str, Any] = {"subject": ((("commonName", "a" * 5000),),)}
    assert principal_of_certificate(certificate, parse_rules("DEFAULT")) == ""
