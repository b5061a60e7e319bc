"""Hold the tree to its own rules: layers, disk calls, lengths, words. What a machine can check.

A remark that was made twice in a review becomes a rule here.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.room_layers import LAYERS
from support.source_tree import (
    REPOSITORY,
    SOURCE,
    for_each,
    name_of,
    nodes_of,
    python_files,
    tree_of,
)

# An edge that rooms below may call, but only inside a function: it imports an extra.
LAZY = {("logstore.log", "logstore.arrow")}

# The only modules whose calls touch a disk; fault tests replace what stands there.
DISK_MODULES = {"src/logstore/disk/files.py", "src/logstore/disk/mapped.py"}
# The only room of the broker that does I/O: it sends files to sockets, and closes its own eventfd.
SOCKET_ROOM, SOCKET_CALLS = "broker.net", ("os.sendfile", "os.close")
# A broker and a cluster for tests of users are in temporary directories.
TEMPORARY = ("broker.server", "cluster.local.cluster", "cluster.tools.grow_command")
DISK_IMPORTS = {"glob", "mmap", "pathlib", "shutil", "tempfile", "pickle", "fileinput"}
DISK_CALLS = {
    "access", "chmod", "chown", "close", "copy_file_range", "fdatasync", "fdopen", "fstat",
    "fstatvfs", "fsync", "ftruncate", "fwalk", "link", "listdir", "lseek", "lstat", "makedirs",
    "mkdir", "open", "posix_fadvise", "posix_fallocate", "pread", "preadv", "pwrite", "pwritev",
    "read", "readlink", "readv", "remove", "removedirs", "rename", "renames", "replace", "rmdir",
    "scandir", "sendfile", "stat", "statvfs", "symlink", "sync", "truncate", "unlink", "utime",
    "walk", "write", "writev",
}  # fmt: skip
DISK_PATH_CALLS = {
    "exists", "getatime", "getctime", "getmtime", "getsize", "isdir", "isfile", "islink",
    "ismount", "lexists", "realpath", "samefile",
}  # fmt: skip
NUMPY_CALLS = {"fromfile", "load", "loadtxt", "memmap", "save", "savez"}
CALLS_OF = {
    "os": DISK_CALLS,
    "os.path": DISK_PATH_CALLS,
    "fcntl": {"flock", "ioctl", "lockf"},
    "np": NUMPY_CALLS,
    "numpy": NUMPY_CALLS,
}

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
COLUMNS_MAX = 100

# Names that say less than a word would; `fd` and `crc` are words here.
ABBREVIATIONS = {
    "addr", "arr", "buf", "cb", "cfg", "cnt", "cur", "dst", "elem", "hdr", "idx", "msg",
    "params", "pos", "prev", "ptr", "req", "res", "resp", "src", "sz", "ts",
    "val", "vals",
}  # fmt: skip


def module_of(path: Path) -> str:
    """Give the dotted name of a file below src."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """Give the package that a module belongs to: `logstore.log` for `logstore.log.writer`."""
    parts = module.split(".")
    return parts[0] if parts[0] in ("mover", "cluster") else ".".join(parts[:2])


def level_of(room: str) -> int:
    """Give a room's place in LAYERS."""
    levels = [level for level, rooms in enumerate(LAYERS) if room in rooms]
    assert levels, f"{room} stands in no layer: add it to LAYERS"
    return levels[0]


def imports_of(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Give what a file imports: module, line, and whether it does so inside a function."""
    inside = {
        id(node)
        for function in nodes_of(path)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in inside
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: import by the full name"
            module = node.module or ""
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                is_module = (SOURCE / whole.replace(".", "/")).exists() or (
                    SOURCE / (whole.replace(".", "/") + ".py")
                ).exists()
                yield whole if is_module else module, node.lineno, id(node) in inside


@for_each(python_files("src"))
def test_rooms_import_from_above_only(path: Path) -> None:
    """A room knows itself and what stands above it; logstore knows no other package."""
    room = room_of(module_of(path))
    for module, line, is_lazy in imports_of(path):
        if module.split(".")[0] not in ("logstore", "mover", "broker", "cluster"):
            continue
        other = room_of(module)
        if is_lazy and (room, other) in LAZY:
            continue
        if room in ("logstore.cli", "logstore.bench", "logstore.spark") and other == "logstore":
            continue  # the edges are users of the public names
        assert other == room or level_of(other) <= level_of(room), (
            f"{name_of(path)}:{line}: {room} imports {module}, which stands below it"
        )
        assert room in ("mover", "cluster") or room.startswith("broker") or other != "mover"


# Receivers whose package is known by their name: `log._x` is a private name of the log's package.
OWNERS = {"log": "logstore.log", "store": "logstore.store", "batch": "logstore.format"}
NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}
SYSTEM_CALLS = {"os._exit", "sys._getframe"}


@functools.cache
def private_names() -> dict[str, set[str]]:
    """Give the private names that each package defines, methods and attributes."""
    names: dict[str, set[str]] = {}
    for path in python_files("src"):
        room = room_of(module_of(path))
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef):
                names.setdefault(room, set()).add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.setdefault(room, set()).add(node.target.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.setdefault(room, set()).add(node.attr)
    return names


@for_each(python_files("src"))
def test_packages_use_public_names_of_one_another(path: Path) -> None:
    """No `other._attribute` between packages: the log and the store have host interfaces."""
    room = room_of(module_of(path))
    for node in nodes_of(path):
        if not isinstance(node, ast.Attribute) or not re.match("_[a-z]", node.attr):
            continue
        receiver = ast.unparse(node.value)
        whole = f"{receiver}.{node.attr}"
        if receiver in ("self", "cls", "super()") or node.attr in NAMED_TUPLE:
            continue
        owner = OWNERS.get(receiver.split(".")[-1].lstrip("_"), room)
        is_own = owner == room and node.attr in private_names()[room]
        assert is_own or whole in SYSTEM_CALLS, f"{name_of(path)}:{node.lineno}: {whole}"


def disk_call(node: ast.AST) -> str | None:
    """Give the name of the call that touches a disk, if this node is one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
        return "open"
    if not isinstance(node, ast.Attribute):
        return None
    base = ast.unparse(node.value)
    return f"{base}.{node.attr}" if node.attr in CALLS_OF.get(base, ()) else None


@for_each(python_files("src"))
def test_two_modules_touch_the_disk(path: Path) -> None:
    """Everything else calls them; the command line reads its input, and nothing of a log dir."""
    if name_of(path) in DISK_MODULES:
        return
    is_edge = room_of(module_of(path)) in ("logstore.cli", "logstore.bench")
    calls = {
        f"{name_of(path)}:{node.lineno}: {call}"
        for node in nodes_of(path)
        if isinstance(node, ast.expr) and (call := disk_call(node))
    }
    if is_edge:
        calls = {call for call in calls if not call.endswith((": open", ": os.read"))}
    if room_of(module_of(path)) == SOCKET_ROOM:
        calls = {call for call in calls if not call.endswith(SOCKET_CALLS)}
    makes_directories = is_edge or module_of(path) in TEMPORARY
    calls |= {
        f"{name_of(path)}:{line}: import {module}"
        for module, line, _ in imports_of(path)
        if module.split(".")[0] in DISK_IMPORTS - ({"tempfile"} if makes_directories else set())
    }
    assert not calls


@for_each(python_files("src", "tests", "benchmarks"))
def test_files_and_functions_are_short(path: Path) -> None:
    """A file is read in one go, a function on one screen, a line without scrolling."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= FILE_LINES_MAX
    for number, line in enumerate(lines, 1):
        assert len(line) <= COLUMNS_MAX, f"{name_of(path)}:{number} has {len(line)} columns"
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{name_of(path)}:{node.lineno} {node.name}"


@for_each(python_files("src", "benchmarks"))
def test_no_error_is_swallowed(path: Path) -> None:
    """What is caught without a type is at least looked at."""
    for node in nodes_of(path):
        where = f"{name_of(path)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.ExceptHandler):
            caught = "all" if node.type is None else ast.unparse(node.type)
            is_wide = caught in ("all", "Exception", "BaseException")
            is_empty = all(isinstance(item, ast.Pass | ast.Continue) for item in node.body)
            assert not (is_wide and is_empty), where
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            assert not {"Exception", "BaseException"} & {ast.unparse(arg) for arg in node.args}, (
                where
            )


@for_each(python_files("src"))
def test_names_are_words(path: Path) -> None:
    """Nobody has to guess what an abbreviation stands for."""
    names = {
        node.arg if isinstance(node, ast.arg) else node.id
        for node in nodes_of(path)
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }
    assert not names & ABBREVIATIONS


@for_each(python_files("src"))
def test_modules_open_with_a_sentence(path: Path) -> None:
    """A module says what it is before its first import."""
    text = path.read_text(encoding="utf-8")
    assert text.strip() == "" or (ast.get_docstring(tree_of(path)) or "").strip()


LOCKS = re.compile(r".*(lock|_(changing|listing|mutex|noting))\b.*")


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Give a node and what is in it, without what runs in a frame of its own."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda | ast.GeneratorExp):
            yield from own_nodes(child)


def jumps_back_on_a_condition(node: ast.AST) -> bool:
    """Tell of a loop whose way back hangs on a condition."""
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp):
        return any(part.ifs for part in node.generators)
    if isinstance(node, ast.While) and not isinstance(node.test, ast.Constant):
        return True
    return isinstance(node, ast.For | ast.While) and isinstance(node.body[-1], ast.If)


@for_each(python_files("src"))
def test_no_lock_is_held_over_a_loop_of_its_own_frame(path: Path) -> None:
    """CPython 3.13 forgets the `with` when Ctrl-C comes at such a loop's way back (gh-130279).

    The lock stays held for good. In a function that is called there, the same loop does no harm.
    """
    for node in nodes_of(path):
        if isinstance(node, ast.With) and any(
            LOCKS.fullmatch(ast.unparse(item.context_expr)) for item in node.items
        ):
            for inner in (one for statement in node.body for one in own_nodes(statement)):
                assert not jumps_back_on_a_condition(inner), (
                    f"{name_of(path)}: {ast.unparse(inner)}"
                )


@for_each(python_files("tests"))
def test_tests_wait_for_events(path: Path) -> None:
    """No test sleeps, is skipped or is expected to fail; one place may leave a layer out."""
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute):
            whole = ast.unparse(node)
            where = f"{name_of(path)}:{node.lineno}: {whole}"
            assert whole != "time.sleep", where
            assert not re.fullmatch(r"pytest\.mark\.(skip|skipif|xfail)|pytest\.xfail", whole), (
                where
            )
            assert whole != "pytest.skip" or path.name == "layers.py", where


@for_each(python_files("tests"))
def test_tests_say_what_is_true(path: Path) -> None:
    """Each test has a sentence."""
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = (ast.get_docstring(node) or "").splitlines()[:1]
            assert first and first[0].endswith((".", "?", "!")), f"{name_of(path)}:{node.lineno}"


def test_each_module_has_its_tests() -> None:
    """A test file of its own name, or a line in the test map that says where it is tested."""
    lines = tomllib.loads((REPOSITORY / "tests" / "test_map.toml").read_text(encoding="utf-8"))
    known = {module: file for room in lines.values() for module, file in room.items()}
    named = {path.stem for path in python_files("tests")}
    modules = {
        module_of(path): path.stem for path in python_files("src") if not path.stem.startswith("__")
    }
    shared = {stem for stem, count in Counter(modules.values()).items() if count > 1}
    mapped = {
        name for name, stem in modules.items() if stem in shared or f"test_{stem}" not in named
    }
    assert sorted(mapped - known.keys()) == [], "without a test: name one in tests/test_map.toml"
    assert sorted(known.keys() - mapped) == [], "a line too many in tests/test_map.toml"
    for module, file in known.items():
        assert (REPOSITORY / "tests" / file).is_file(), f"{module}: there is no tests/{file}"


def test_pyspark_comes_with_what_it_wants_for_arrow() -> None:
    """PySpark's `mapInArrow` is refused without pandas, which only its extra `sql` brings."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["optional-dependencies"].values()]
    wanted += project["dependency-groups"].values()
    named = [one for group in wanted for one in group if str(one).startswith("pyspark")]
    assert named and all(one.startswith("pyspark[sql]") for one in named)


def test_source_and_tests_keep_their_proportion(capsys: pytest.CaptureFixture[str]) -> None:
    """There is about as much test as source, and the figure is shown."""
    source = sum(len(path.read_text().splitlines()) for path in python_files("src"))
    tests = sum(len(path.read_text().splitlines()) for path in python_files("tests"))
    lengths = sorted(len(path.read_text().splitlines()) for path in python_files("src"))
    with capsys.disabled():
        print(
            f"\ntidy: {source} lines of source in {len(lengths)} files, median "
            f"{lengths[len(lengths) // 2]}; {tests} lines of tests, ratio {tests / source:.2f}"
        )
    assert 0.5 < tests / source < 2.5


def test_a_rule_reports_every_file_that_breaks_it() -> None:
    """One test for all files hides none of them."""
    bad = [REPOSITORY / "README.md", REPOSITORY / "LICENSE"]

    @for_each([*bad, REPOSITORY / "Makefile"])
    def rule(path: Path) -> None:
        assert path not in bad

    with pytest.raises(AssertionError, match=r"(?s)README\.md: .*LICENSE: "):
        rule()
    for_each([REPOSITORY / "Makefile"])(lambda path: None)()
