"""Hold the modules of the source to an order: each one imports only modules above it.

Every import counts: at the top of a module, inside a function, or for a type checker alone. A name
that is imported from a list of public names counts as an import from the module that defines it.
A module that is loaded by its name (a command of the command line, the commands of moves) is not
counted: the module that loads it knows only the name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
PUBLIC_LISTS = {"logstore", "mover", "broker"}  # `__init__` names the public names, their modules

Imports = dict[str, dict[str, list[int]]]  # by module: what it imports, and in which lines

# The circles that are left, each with its reason. A circle that gets smaller or larger is another
# one: then its line here changes too.
CIRCLES: list[set[str]] = []


def modules() -> dict[str, Path]:
    """Give the file of each module of the source by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path) -> Iterator[tuple[str, str, int]]:
    """Give each import of a file: the module, the name that is taken from it or "", the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, "", node.lineno
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.module or "", alias.name, node.lineno


def import_graph() -> Imports:
    """Give, for each module of the source, the modules of the source that it imports."""
    files = modules()
    homes = {
        (public, name): module
        for public in PUBLIC_LISTS
        for module, name, _ in imported(files[public])
        if module in files
    }
    graph: Imports = {name: {} for name in files if name not in PUBLIC_LISTS}
    for importer, edges in graph.items():
        for module, name, line in imported(files[importer]):
            whole = f"{module}.{name}"
            target = whole if whole in files else homes.get((module, name), module)
            if target in graph and target != importer:
                edges.setdefault(target, []).append(line)
    return graph


def circles_of(graph: Mapping[str, Mapping[str, object]]) -> list[set[str]]:
    """Find the strongly connected components of more than one module (Kosaraju)."""
    importers: dict[str, list[str]] = {name: [] for name in graph}
    for name, edges in graph.items():
        for target in edges:
            importers[target].append(name)
    order: list[str] = []
    seen: set[str] = set()
    for name in graph:
        _visit(name, graph, seen, order)
    seen.clear()
    found = []
    for name in reversed(order):
        component: list[str] = []
        _visit(name, importers, seen, component)
        if len(component) > 1:
            found.append(set(component))
    return found


def _visit(
    start: str,
    graph: Mapping[str, Mapping[str, object] | list[str]],
    seen: set[str],
    left: list[str],
) -> None:
    """Walk a graph depth first and append each new module to `left` when the walk leaves it."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(graph[start]))]
    while stack:
        name, targets = stack[-1]
        for target in targets:
            if target not in seen:
                seen.add(target)
                stack.append((target, iter(graph[target])))
                break
        else:
            stack.pop()
            left.append(name)


def lines_of(circle: set[str], graph: Imports) -> str:
    """List the imports inside a circle, for the message of a test that fails."""
    return "\n".join(
        f"  {name}:{','.join(map(str, lines))} imports {target}"
        for name in sorted(circle)
        for target, lines in sorted(graph[name].items())
        if target in circle
    )


def test_no_circle_of_imports_but_the_listed_ones() -> None:
    """A module can be read, tested and moved with the modules above it alone."""
    graph = import_graph()
    found = circles_of(graph)
    new = [lines_of(circle, graph) for circle in found if circle not in CIRCLES]
    gone = [sorted(circle) for circle in CIRCLES if circle not in found]
    assert not new, "\n\n".join(["circles of imports:", *new])
    assert not gone, f"these circles are listed, but no longer exist: {gone}"


@pytest.mark.parametrize(
    ("graph", "circles"),
    [
        ({"a": "b", "b": "c", "c": ""}, []),
        ({"a": "b", "b": "a", "c": "ab"}, [{"a", "b"}]),
        ({"a": "b", "b": "c", "c": "a", "d": "ae", "e": "d"}, [{"d", "e"}, {"a", "b", "c"}]),
    ],
)
def test_circles_are_found(graph: dict[str, str], circles: list[set[str]]) -> None:
    """The search finds each circle once, and nothing where there is none."""
    found = circles_of({name: dict.fromkeys(targets) for name, targets in graph.items()})
    assert sorted(map(sorted, found)) == sorted(map(sorted, circles))


def test_every_kind_of_import_counts(tmp_path: Path) -> None:
    """An import inside a function, or for a type checker alone, is an import."""
    path = tmp_path / "module.py"
    path.write_text(
        "import a\nif TYPE_CHECKING:\n    from b import c\ndef load():\n    from d import e, f\n"
    )
    assert sorted(imported(path)) == [("a", "", 1), ("b", "c", 3), ("d", "e", 5), ("d", "f", 5)]
