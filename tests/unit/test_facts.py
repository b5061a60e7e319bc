"""Facts of a log dir are durable when a change returns; only the right file is used."""

from __future__ import annotations

import errno
import json
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import (
    LogClosedError,
    LogDirError,
    LogDirOfflineError,
    LogStore,
    LogStoreError,
    ReadOnlyStoreError,
)
from logstore.disk import files
from logstore.disk.documents import checkpoint
from logstore.disk.documents import facts as facts_module
from logstore.disk.documents.facts import (
    FACTS_BYTES_MAX,
    FACTS_NAME,
    Facts,
    Noted,
    facts_of,
    from_document,
)
from logstore.disk.documents.meta_properties import new_id
from logstore.disk.log_dir import LogDir

NUMBERS = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
CELLS = st.none() | st.booleans() | NUMBERS | st.text(max_size=9)
VALUES = st.recursive(
    CELLS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=9,
).filter(lambda value: value is not None)


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[LogDir]:
    """Return a log dir that this process owns."""
    found = LogDir(str(tmp_path))
    found.belong(new_id(), new_id())
    found.lock.acquire()
    yield found
    found.release()


def mapping_of(log_dir: LogDir) -> Facts:
    """Return the facts of a log dir, as users get them."""
    facts = facts_of(log_dir)
    return Facts(facts.read, facts.replace)


def after_a_restart(log_dir: LogDir, *, read_only: bool = False) -> LogDir:
    """Return the log dir as another process sees it."""
    again = LogDir(log_dir.path, read_only=read_only)
    again.belong(log_dir.cluster_id, log_dir.directory_id)
    return again


@given(values=st.dictionaries(st.text(min_size=1, max_size=9), VALUES, max_size=4))
def test_what_was_noted_is_read_back(values: dict[str, Any]) -> None:
    """Any JSON value is read back unchanged, also through the text of the file."""
    noted = Noted(6).changed(values)
    assert noted.facts == values and noted.generation == 7 and not noted.damage
    document = json.loads(json.dumps({"version": 1, **noted.to_document()}))
    assert from_document(document) == noted


def test_facts_are_a_mapping_that_lasts(log_dir: LogDir) -> None:
    """Each change increases the generation by one, and a restart finds the change."""
    facts = mapping_of(log_dir)
    assert dict(facts) == {} and facts.generation == 0 and facts.damage == ""
    facts["whole_since"] = 12
    facts.update({"boot_id": "b", "mounts": [1, 2]}, extra=None)
    assert facts.generation == 2 and len(facts) == 3 and "extra" not in facts
    facts["mounts"].append(3)  # of a copy
    del facts["boot_id"]
    again = mapping_of(after_a_restart(log_dir))
    assert dict(again) == {"whole_since": 12, "mounts": [1, 2]} == dict(facts)
    assert again.generation == 3 and repr(again) == repr(facts)
    with pytest.raises(KeyError):
        del facts["boot_id"]
    with pytest.raises(KeyError):
        facts["boot_id"]
    assert facts.generation == 3


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        (1, 1, TypeError),
        ("", 1, ValueError),
        ("x" * 250, 1, ValueError),
        ("x", math.nan, ValueError),
        ("x", [math.inf], ValueError),
        ("x", 2**62 + 1, ValueError),
        ("x", b"bytes", TypeError),
        ("x", {1: 2}, TypeError),
        ("x", {"a": {2, 3}}, TypeError),
        ("x", "y" * FACTS_BYTES_MAX, ValueError),
    ],
)
def test_what_is_no_fact_changes_nothing(
    log_dir: LogDir, name: Any, value: Any, error: type[Exception]
) -> None:
    """A value that is not JSON, or is too large, is refused before anything is written."""
    facts = mapping_of(log_dir)
    facts["kept"] = True
    with pytest.raises(error):
        facts.update({"other": 1, name: value})
    deep: list[Any] = []
    for _ in range(99):
        deep = [deep]
    with pytest.raises(ValueError, match="nested"):
        facts["deep"] = deep
    assert dict(facts) == {"kept": True} == dict(mapping_of(after_a_restart(log_dir)))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "log-dir-settings"},
        {"directory_id": "1" * 32},
        {"facts": [1]},
        {"facts": {"": 1}},
        {"facts": {"x": "y" * FACTS_BYTES_MAX}},
        {"generation": -1},
        {"generation": 2**60},
        {"generation": True},
        {"version": 9},
    ],
)
def test_another_file_in_its_place_gives_no_facts(log_dir: LogDir, change: dict[str, Any]) -> None:
    """The facts say why they are empty, and the next change writes the file again."""
    mapping_of(log_dir)["x"] = 1
    path = os.path.join(log_dir.path, FACTS_NAME)
    document = checkpoint.read_document(path)
    assert document is not None
    checkpoint.write_document(path, {**document, **change})
    facts = mapping_of(after_a_restart(log_dir))
    assert dict(facts) == {} and facts.generation == 0 and facts.damage
    facts["y"] = 2
    assert dict(facts) == {"y": 2} and not facts.damage
    assert mapping_of(after_a_restart(log_dir)).generation == 1


@pytest.mark.parametrize("data", [b"", b"\0" * 50, b"{}\n", b"x" * (2 << 20)])
def test_a_damaged_file_gives_no_facts(log_dir: LogDir, data: bytes) -> None:
    """The checksum is wrong, or the file is too large to be read."""
    Path(log_dir.path, FACTS_NAME).write_bytes(data)
    facts = mapping_of(log_dir)
    assert not facts and facts.damage


def test_a_change_that_fails_leaves_the_old_facts(
    log_dir: LogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk fails during the sync, the log dir is offline, and the old facts stay."""
    facts = mapping_of(log_dir)
    facts["x"] = 1

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomically", fail)
        with pytest.raises(LogDirOfflineError):
            facts["x"] = 2
    assert facts["x"] == 1  # from memory
    with pytest.raises(LogDirOfflineError):
        facts["x"] = 3
    assert mapping_of(after_a_restart(log_dir))["x"] == 1


def test_a_log_dir_that_is_away_gives_no_empty_facts(log_dir: LogDir) -> None:
    """An empty mount point has no file, but the missing disk may have one."""
    log_dir.take_offline("gone")
    with pytest.raises(LogDirOfflineError):
        dict(mapping_of(log_dir))


def test_a_reader_follows_the_owner_and_changes_nothing(log_dir: LogDir) -> None:
    """A read-only store reads the file each time."""
    facts, view = mapping_of(log_dir), mapping_of(after_a_restart(log_dir, read_only=True))
    for number in range(3):
        facts["x"] = number
        assert view["x"] == number
    with pytest.raises(ReadOnlyStoreError):
        view["x"] = 9
    assert facts["x"] == 2


def test_changes_of_many_threads_exclude_one_another(log_dir: LogDir) -> None:
    """No change is lost, and each has its own generation."""
    facts = mapping_of(log_dir)
    errors: list[LogStoreError] = []

    def change(number: int) -> None:
        try:
            for step in range(5):
                facts[f"x{number}"] = step
        except LogStoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and facts.generation == 20
    assert dict(facts) == {f"x{number}": 4 for number in range(4)}


def test_a_store_keeps_facts_in_each_of_its_log_dirs(tmp_path: Path) -> None:
    """Any path finds the facts; they survive a return of the log dir, and readers see them."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    with LogStore.open(dirs, admin_socket=False) as store:
        facts = store.facts(dirs[0])
        facts["boot_id"] = "x"
        assert not store.facts(dirs[1]) and store.facts(f"{dirs[0]}/")["boot_id"] == "x"
        with LogStore.open(dirs, read_only=True) as view:
            assert dict(view.facts(dirs[0])) == {"boot_id": "x"}
            with pytest.raises(ReadOnlyStoreError):
                view.facts(dirs[0])["boot_id"] = "y"
        store.take_offline(dirs[0])
        with pytest.raises(LogDirOfflineError):
            facts["boot_id"] = "y"
        store.reopen_dir(dirs[0])
        facts["boot_id"] = "z"
        assert facts.generation == 2
        with pytest.raises(LogDirError):
            store.facts(tmp_path / "c")
    with pytest.raises(LogClosedError):
        dict(facts)
    with LogStore.open(dirs, admin_socket=False) as store:
        assert dict(store.facts(dirs[0])) == {"boot_id": "z"}
        assert not store.recovery_report.warnings


def test_the_document_describes_the_file(log_dir: LogDir) -> None:
    """A row of docs/FORMAT.md names each key."""
    mapping_of(log_dir)["x"] = 1
    document = checkpoint.read_document(os.path.join(log_dir.path, FACTS_NAME))
    text = (Path(__file__).parents[2] / "docs" / "FORMAT.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith(f"| `{FACTS_NAME}`")]
    assert document is not None and all(f'"{key}"' in row for key in document)


def test_regression_a_slow_reader_does_not_bring_old_facts_back(
    log_dir: LogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader read the file before a change, and kept the old facts after the change."""
    mapping_of(log_dir)["n"] = 1
    facts_of(log_dir)._noted = None  # as after a start
    facts, real = mapping_of(log_dir), facts_module.read_facts
    has_read, may_go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Noted:
        noted = real(*arguments)
        if threading.current_thread() is reader:
            has_read.set()
            assert may_go_on.wait(30)
        return noted

    monkeypatch.setattr(facts_module, "read_facts", slow)
    reader = threading.Thread(target=lambda: facts.get("n"))
    reader.start()
    assert has_read.wait(30)
    facts["n"] = 2
    may_go_on.set()
    reader.join()
    assert (facts["n"], facts.generation) == (2, 2)
    facts["m"] = 3
    assert dict(mapping_of(after_a_restart(log_dir))) == {"n": 2, "m": 3}
