"""Run what the documents show, and follow where they point."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from logstore import LogConfig, LogStore, OffsetOutOfRangeError
from support.places import environment
from support.run_document import python_blocks

REPOSITORY = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    REPOSITORY / "README.md",
    REPOSITORY / "CHANGELOG.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
RUNNER = REPOSITORY / "tests" / "support" / "run_document.py"
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
BAR = re.compile(r"(?<!\\)\|")
TARGET = re.compile(r"`?make ([a-z][a-z-]+)")


def name_of(path: Path) -> str:
    """Give a document's path inside the repository."""
    return path.relative_to(REPOSITORY).as_posix()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "path", [path for path in DOCUMENTS if python_blocks(path.read_text())], ids=name_of
)
def test_python_blocks_run(path: Path, tmp_path: Path) -> None:
    """Every Python block runs in a fresh directory, and prints what its comments say."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(RUNNER), str(path)],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) == len(python_blocks(path.read_text()))


@pytest.mark.timeout(120)
def test_regression_the_examples_of_the_next_document_run_beside_those_of_the_first(
    tmp_path: Path,
) -> None:
    """The logs of USING had names of README's logs, with other records and configurations."""
    using = REPOSITORY / "docs" / "USING.md"
    for path in (REPOSITORY / "README.md", using):
        done = subprocess.run(
            [sys.executable, "-W", "error", str(RUNNER), str(path)],
            cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_regression_examples_survive_their_second_start(path: Path) -> None:
    """Whoever copies an example runs it twice: it creates only what is not there."""
    for lines_before, source in python_blocks(path.read_text()):
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("store.create"):
                names = [keyword.arg for keyword in call.keywords]
                assert "exist_ok" in names, lines_before + call.lineno
    for block in SHELL.findall(path.read_text()):
        for line in block.splitlines():
            assert "logstore create" not in line or "--exist-ok" in line, line


def test_regression_the_event_source_of_the_readme_loses_nothing(tmp_path: Path) -> None:
    """Retention raises; a record that is appended during a fold is in the next one."""
    blocks = python_blocks((REPOSITORY / "README.md").read_text())
    (source,) = [text.split("\nwith ")[0] for _, text in blocks if "def balances" in text]
    names: dict[str, Any] = {}
    exec(source, names)
    balances = names["balances"]
    with LogStore.open(tmp_path) as store:
        log = store.create("payments", 0, exist_ok=True, config=LogConfig(segment_bytes=256))

        def pay(amount: int) -> None:
            log.append(b'{"amount": %d}' % amount, key=b"ada")

        class Impatient(Counter[str]):
            """Pay once more while the fold runs."""

            def __setitem__(self, account: str, balance: int) -> None:
                super().__setitem__(account, balance)
                if log.log_end_offset == 8:
                    pay(1000)

        for _ in range(8):
            pay(1)
        names["Counter"] = Impatient
        state, seen = balances(log)
        assert (dict(state), seen) == ({"ada": 8}, 8)
        names["Counter"] = Counter
        state, seen = balances(log, state, seen)
        assert (dict(state), seen) == ({"ada": 1008}, 9)
        for _ in range(8):
            pay(1)
        log.delete_records_before(12)
        with pytest.raises(OffsetOutOfRangeError):
            balances(log, state, seen)
        with pytest.raises(OffsetOutOfRangeError):
            balances(log)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "path", [path for path in DOCUMENTS if SHELL.search(path.read_text())], ids=name_of
)
def test_shell_blocks_run(path: Path, tmp_path: Path) -> None:
    """Every `sh` block ends well in a fresh directory, with `logstore` on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "logstore"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m logstore.cli "$@"\n')
    program.chmod(0o755)
    variables = environment()
    variables["PATH"] = f"{programs}{os.pathsep}{variables['PATH']}"
    for block in SHELL.findall(path.read_text()):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=tmp_path, env=variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("One owner, several web workers", "owner.py web_worker.py"),
        ("Threads and processes", "forked Appender LogStore ReplicaMover"),
        ("Retention by example", "retention_ms retention_bytes"),
        ("Logging", "logging.getLogger"),
        ("What order means", "offset"),
        ("Platforms, containers, network file systems", "Linux Kubernetes NFS"),
        ("In your tests", "pyfakefs tmp_path Clock"),
        ("Versions", "0.1.0 Python"),
    ],
)
def test_regression_a_user_finds_an_answer(heading: str, words: str) -> None:
    """Users of version 0.1.0 asked for each of these, and no document had a word on it."""
    text = (REPOSITORY / "docs" / "USING.md").read_text()
    _, found, rest = text.partition(f"\n## {heading}\n")
    section = rest.partition("\n## ")[0]
    assert found and not [word for word in words.split() if word not in section]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    """A link inside the repository names a file, and a heading that is there."""
    for target, anchor in LINK.findall(path.read_text()):
        if "://" in target:
            continue
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_each_row_of_a_table_has_the_columns_of_its_head(path: Path) -> None:
    """Two rows that were joined, or a cell that contains a bar, are found."""
    columns = 0
    for line in path.read_text().splitlines():
        bars = len(BAR.findall(line)) if line.startswith("|") else 0
        assert not (bars and columns) or bars == columns, line
        columns = bars


def test_every_make_target_that_is_named_exists() -> None:
    """What a document tells people to type is in the Makefile."""
    rules = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for path in DOCUMENTS:
        for text in re.findall(r"`([^`\n]+)`|^\$ (.+)$", path.read_text(), re.MULTILINE):
            for target in TARGET.findall(" ".join(text)):
                assert target in rules, f"{name_of(path)}: make {target}"


def test_ci_runs_the_test_command_of_the_readme() -> None:
    """`.ci/run` and the README agree on how everything is tested."""
    assert "$ make test" in (REPOSITORY / "README.md").read_text()
    lines = (REPOSITORY / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if "make" in line and not line.startswith("#")] == [
        "exec make test"
    ]


def test_every_module_in_the_map_of_the_architecture_exists() -> None:
    """Words with an underscore in the map are modules or folders; one that moved is found."""
    text = (REPOSITORY / "docs" / "ARCHITECTURE.md").read_text()
    found = re.search(r"^    logstore/\n(.*?)^\S", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    named = set(re.findall(r"\b[a-z0-9]+(?:_[a-z0-9]+)+\b", found[1]))
    assert "startup_table" in named
    assert named <= {path.stem for path in (REPOSITORY / "src").rglob("*")}


def test_decisions_are_numbered_and_short() -> None:
    """Decisions count up from 0001 without a gap and fit on a screen."""
    paths = sorted((REPOSITORY / "docs" / "adr").glob("*.md"))
    assert [path.name[:4] for path in paths] == [f"{n:04d}" for n in range(1, len(paths) + 1)]
    for path in paths:
        assert len(path.read_text().splitlines()) <= 45, path.name
