"""Read the tree of sources for the tests that hold it to its own rules."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src"


@functools.cache
def python_files(*rooms: str) -> list[Path]:
    """List the Python files below directories of the repository."""
    return sorted(path for room in rooms for path in (REPOSITORY / room).rglob("*.py"))


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Parse a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """List all nodes of a file; each rule looks at them."""
    return list(ast.walk(tree_of(path)))


Rule = Callable[[Path], None]


def for_each(paths: Iterable[Path]) -> Callable[[Rule], Callable[[], None]]:
    """Make one test of a rule for a file: it reports every file that breaks the rule.

    A test for each file and rule would be 3,700 tests, and cost more than the rules do.
    """

    def gather(rule: Rule) -> Callable[[], None]:
        def gathered() -> None:
            broken = []
            for path in paths:
                try:
                    rule(path)
                except AssertionError as error:
                    broken.append(f"{name_of(path)}: {error}")
            assert not broken, "\n\n".join(broken)

        gathered.__doc__ = rule.__doc__
        return gathered

    return gather


def name_of(path: Path) -> str:
    """Give a file's path inside the repository."""
    return path.relative_to(REPOSITORY).as_posix()
