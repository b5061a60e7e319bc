"""Compare the lookup of ACLs with a naive authorizer, which must notice changed rules."""

from __future__ import annotations

import importlib
import inspect
import random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from broker.authorization import acl_snapshot, bindings
from broker.authorization.acl_snapshot import AclSnapshot
from broker.authorization.authorizer import Authorizer, AuthorizerSettings
from broker.authorization.binding_filter import BindingFilter
from broker.authorization.bindings import Operation, PatternType
from support import acl_model as model

WORLDS = 400
QUESTIONS = 20


def compare(seed: int, worlds: int = WORLDS, kind: Any = AclSnapshot) -> None:
    """Ask the snapshot and the model the same questions about small sets of ACLs."""
    rng = random.Random(seed)
    for world in range(worlds):
        found = model.drawn_bindings(rng)
        default = rng.random() < 0.3
        authorizer = Authorizer(AuthorizerSettings(frozenset(), default), cached_max=20)
        snapshot = kind.of(found)
        if rng.random() < 0.5:  # the same set, after a change of some patterns
            at = rng.randrange(len(found) + 1)
            patterns = {one.pattern for one in found[at:]}
            final = kind.of(found)
            snapshot = kind.of(found[:at]).with_entries(
                {pattern: final.entries[pattern] for pattern in patterns}
            )
        authorizer.replace(snapshot)
        assert snapshot.count == len(set(found)), f"seed {seed}, world {world}"
        for _ in range(QUESTIONS):
            who = rng.choice(model.PRINCIPALS), rng.choice(model.HOSTS)
            what = rng.choice(model.OPERATIONS), rng.choice(model.KINDS)
            name = rng.choice(model.NAMES) + rng.choice(("", "", "c", model.FRESH))
            said = f"seed {seed}, world {world}: {who} {what} {name!r} {default} {found}"
            wanted = model.may(found, *who, *what, name, default=default)
            assert authorizer.may(*who, *what, name) is wanted, said
            wanted = model.may_with_any(found, *who, *what, default=default)
            assert authorizer.may_with_any(*who, *what) is wanted, said


def test_decisions_are_those_of_the_model() -> None:
    """The snapshot decides like the model, even after changes and earlier questions."""
    compare(random.SystemRandom().randrange(1 << 32))


class Mutant(NamedTuple):
    """One rule changed: a piece of a module's source, and what replaces it."""

    name: str
    old: str
    new: str
    module: str = "acl_snapshot"


MUTANTS = (
    Mutant("ALLOW wins over DENY", "                return False\n            is_allowed",
           "                continue\n            is_allowed"),
    Mutant("a DENY of everything denies nothing", "given in (operation, Operation.ALL)",
           "given is operation"),
    Mutant("a DENY denies what it implies", "if given in (operation, Operation.ALL)",
           "if given in allowing"),
    Mutant("no operation implies another", "elif given in allowing",
           "elif given in (operation, Operation.ALL)"),
    Mutant("hosts do not count", "if allowed_host not in (WILDCARD, host):", "if False:"),
    Mutant("no host means every host", "not in (WILDCARD, host)", "not in (host,)"),
    Mutant("no principal means every client", "in (principal, EVERY_PRINCIPAL)",
           "in (principal,)"),
    Mutant("no name means every resource", "in (name, WILDCARD)", "in (name,)"),
    Mutant("a prefix does not match itself", "if length > len(name)", "if length >= len(name)"),
    Mutant("only the shortest prefix counts", "                yield groups\n\n    def decide_any",
           "                yield groups\n                return\n\n    def decide_any"),
    Mutant("prefixes match whole names", "PREFIXED, name[:length]))\n            if groups",
           "PREFIXED, name))\n            if groups"),
    Mutant("a resource with ACLs for others is open", "return is_allowed if found else None",
           "return is_allowed or None"),
    Mutant("a change does not reach the index", "        made._index()\n",
           "        made._lengths = self._lengths\n"),
    Mutant("a change leaves the old entries", "            made._grouped.pop(pattern, None)\n"
           "            if some:", "            if some and pattern not in made._grouped:"),
    Mutant("a denied prefix has a name left", "return any(\n            verdicts.get(Pattern",
           "return False and any(\n            verdicts.get(Pattern"),
    Mutant("a denied wildcard has a name left", "            return False\n        if verdicts.get",
           "            pass\n        if verdicts.get"),
    Mutant("an open type is closed by its wildcard only", "(default and everything not in "
           "verdicts)", "default"),
    Mutant("DESCRIBE is implied by READ only", "Operation.READ, Operation.WRITE, Operation.DELETE,"
           "\n        Operation.ALTER,\n    }),\n    Operation.DESCRIBE_CONFIGS", "Operation.READ,"
           "\n    }),\n    Operation.DESCRIBE_CONFIGS", "bindings"),
    Mutant("ALTER_CONFIGS does not imply DESCRIBE_CONFIGS", "Operation.DESCRIBE_CONFIGS, "
           "Operation.ALTER_CONFIGS,\n    }),\n}", "Operation.DESCRIBE_CONFIGS,\n    }),\n}",
           "bindings"),
)  # fmt: skip


def mutated(mutant: Mutant) -> Any:
    """Make the snapshots of a changed source."""
    module = importlib.import_module(f"broker.authorization.{mutant.module}")
    source = inspect.getsource(module)
    assert source.count(mutant.old) == 1, f"{mutant.name}: {source.count(mutant.old)}"
    made: dict[str, Any] = {"__name__": "changed"}
    exec(compile(source.replace(mutant.old, mutant.new), "changed", "exec"), made)
    if mutant.module == "bindings":
        implied = {Operation(key): frozenset(map(Operation, some))
                   for key, some in made["IMPLIED_BY"].items()}  # fmt: skip
        made = {"__name__": "changed"}
        exec(compile(inspect.getsource(acl_snapshot), "changed", "exec"), made)
        made["IMPLIED_BY"] = implied
    return made["AclSnapshot"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_model_notices_a_changed_rule(mutant: Mutant) -> None:
    """If a rule is changed, some decision differs from the model."""
    changed = mutated(mutant)
    with pytest.raises(AssertionError, match="seed 7"):
        compare(7, 10 * WORLDS, changed)


def test_a_decision_does_not_outlive_its_acls() -> None:
    """New ACLs discard the cached decisions, and the cache is bounded."""
    alice = ("User:a", "127.0.0.1", Operation.READ, bindings.ResourceType.TOPIC)
    authorizer = Authorizer(AuthorizerSettings(frozenset({"User:root"})), cached_max=10)
    assert not authorizer.may(*alice, "t") and not authorizer.may_with_any(*alice)
    assert authorizer.may("User:root", *alice[1:], "t")
    assert authorizer.may_with_any("User:root", *alice[1:])
    pattern = bindings.Pattern(bindings.ResourceType.TOPIC, PatternType.LITERAL, "t")
    entry = bindings.Entry("User:a", "*", Operation.READ, bindings.Permission.ALLOW)
    full = AclSnapshot.of([bindings.Binding(pattern, entry)])
    authorizer.replace(full)
    assert authorizer.may(*alice, "t") and authorizer.may(*alice, "t")
    authorizer.replace(full.with_entries({pattern: frozenset()}))
    assert not authorizer.may(*alice, "t")
    for number in range(100):
        authorizer.may(*alice, f"t{number}")
        authorizer.may(*alice, "x" * 300 + str(number))
        assert authorizer.cached_count <= 10
    authorizer.replace(full)
    assert authorizer.cached_count == 0


def test_an_address_has_one_meaning_in_each_notation() -> None:
    """Java and the operating system write IPv6 addresses differently; both forms mean the same."""
    kind, pattern = bindings.ResourceType.TOPIC, PatternType.LITERAL
    for given, own in (
        ("0:0:0:0:0:0:0:1", "::1"), ("2001:DB8::00A", "2001:db8::a"), ("::ffff:10.0.0.1",
        "10.0.0.1"), ("10.0.0.1", "10.0.0.1"),
    ):  # fmt: skip
        entry = bindings.Entry("User:a", given, Operation.ALL, bindings.Permission.ALLOW)
        snapshot = AclSnapshot.of([bindings.Binding(bindings.Pattern(kind, pattern, "t"), entry)])
        assert snapshot.decide("User:a", own, Operation.READ, kind, "t")
        assert not snapshot.decide("User:a", "10.0.0.2", Operation.READ, kind, "t")
        (listed,) = snapshot.bindings(BindingFilter(host=given))
        assert listed.entry == entry


def test_ten_thousand_prefixes_are_not_searched_one_by_one() -> None:
    """A lookup asks once for each length of a prefix, not for each prefix."""
    kind, prefixed = bindings.ResourceType.TOPIC, PatternType.PREFIXED
    entry = bindings.Entry("User:a", "*", Operation.READ, bindings.Permission.ALLOW)
    many = AclSnapshot.of(
        bindings.Binding(bindings.Pattern(kind, prefixed, f"team-{number:05}-"), entry)
        for number in range(10_000)
    )
    asked: list[object] = []
    groups = SimpleNamespace(get=asked.append)
    many._grouped = groups  # type: ignore[assignment]
    assert many.decide("User:a", "h", Operation.READ, kind, "team-00007-orders") is None
    assert len(asked) == 3  # the name, the wildcard, and one length


def test_filters_select_as_the_model_does() -> None:
    """Filters select the same bindings as the model; MATCH finds all matching patterns."""
    rng = random.Random(11)
    for _ in range(300):
        found = model.drawn_bindings(rng)
        pattern, entry = model.drawn_pattern(rng), model.drawn_entry(rng)
        for match in (PatternType.MATCH, PatternType.ANY, pattern.pattern_type):
            wanted = BindingFilter(
                rng.choice((pattern.type, bindings.ResourceType.ANY)),
                rng.choice((pattern.name, None)), match,
                rng.choice((entry.principal, None)), rng.choice((entry.host, None)),
                rng.choice((entry.operation, Operation.ANY)),
                rng.choice((entry.permission, bindings.Permission.ANY)),
            )  # fmt: skip
            expected = {one for one in found if is_selected(wanted, one)}
            assert set(AclSnapshot.of(found).bindings(wanted)) == expected


def is_selected(wanted: BindingFilter, binding: bindings.Binding) -> bool:
    """Compare a binding with a filter, part by part."""
    pattern, entry = binding
    if wanted.pattern_type is PatternType.MATCH:
        is_named = wanted.name is None or model.is_about(pattern, pattern.type, wanted.name)
    else:
        is_named = (wanted.name is None or wanted.name == pattern.name) and (
            wanted.pattern_type in (PatternType.ANY, pattern.pattern_type)
        )
    pairs = (
        (wanted.type, pattern.type), (wanted.principal, entry.principal), (wanted.host, entry.host),
        (wanted.operation, entry.operation), (wanted.permission, entry.permission),
    )  # fmt: skip
    return is_named and all(one in (None, 1, other) for one, other in pairs)
