"""A store to harm: every kind of small file, and everything that may stand in its place.

The store has two log dirs and three partitions. One partition is the second of its name: the first
was deleted, and its files are kept as those of an earlier incarnation. All files are also kept as
they were in the middle, as older ones. It exists twice: closed in order, and killed after a flush.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from logstore import LogConfig, LogStore
from logstore.errors import LogStoreError

CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=256)
PARTITIONS = 3
RECORDS, START = 90, 33
OF_A_DIR = (
    "meta.properties", ".lock", ".clean-shutdown", "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint", "replica-catalog", "log-dir-settings", "log-dir-generation",
    "log-dir-witness", "replication-offset-checkpoint",
)  # fmt: skip
OF_A_LOG = ("partition.metadata", "leader-epoch-checkpoint")
STATES = ("closed", "killed")
# What is no value of any field, written as JSON; and what some fields may have.
NEVER = ("9223372036854775808", "-2", "1e999", "Infinity", "NaN", "1.5", "[[]]", '{"a": 1}')
PERHAPS = (
    "4611686018427387904",
    "9223372036854775807",
    "-1",
    "0",
    "1",
    "null",
    "true",
    '"x"',
    "[]",
)


class Case(NamedTuple):
    """One file with other bytes.

    Attributes:
        must_tell: nobody can take the bytes for what belongs there.
    """

    state: str
    path: str
    what: str
    data: bytes
    must_tell: bool


def value(partition: int, offset: int) -> bytes:
    """Give the value of one record."""
    return b"record %d of partition %d " % (offset, partition) * 3


def make(root: Path) -> None:
    """Make the stores, and the older files beside them."""
    live, dirs = root / "live", [root / "live" / "a", root / "live" / "b"]
    with LogStore.open(dirs, admin_socket=False) as store:
        log = store.create("t", 0, log_dir=dirs[0], config=CONFIG)
        log.leader_epoch = 4
        fill(log, 7, 80)
        log.delete_records_before(71)
    shutil.copytree(live, root / "earlier")
    with LogStore.open(dirs, admin_socket=False) as store:
        store.delete("t", 0)
        for number in range(PARTITIONS):
            log = store.create("t", number, log_dir=dirs[number % 2], config=CONFIG)
            fill(log, number, 40)
            log.delete_records_before(5)
            log.leader_epoch = 2
        store.cordon(dirs[1])
        store.uncordon(dirs[1])
        store.cordon(dirs[0])
        store.uncordon(dirs[0])
    shutil.copytree(live, root / "older")
    with LogStore.open(dirs, admin_socket=False) as store:
        for number in range(PARTITIONS):
            log = store.log("t", number)
            log.leader_epoch = 3
            fill(log, number, RECORDS)
            log.advance_high_watermark(RECORDS - number)
            log.delete_records_before(START)
            log.flush()
        shutil.copytree(live, root / "killed")
    shutil.copytree(live, root / "closed")
    shutil.rmtree(live)


def fill(log: Any, partition: int, end: int) -> None:
    """Append records up to an offset, some to a batch."""
    while log.log_end_offset < end:
        first = log.log_end_offset
        last = min(first + 4, end)
        log.extend([value(partition, offset) for offset in range(first, last)])


def encode(line: str) -> bytes:
    """Close a document with its checksum."""
    data = line.encode()
    return b"%s\nxxh3-64 %s\n" % (data, xxhash.xxh3_64_hexdigest(data).encode())


def cases(root: Path) -> Iterator[Case]:
    """Give everything that may stand in the place of every small file."""
    for state in STATES:
        store = root / state
        paths = [f"a/{name}" for name in OF_A_DIR] + [f"a/t-0/{name}" for name in OF_A_LOG]
        for path in paths:
            if (store / path).exists():
                yield from _of_file(root, state, path)


def _of_file(root: Path, state: str, path: str) -> Iterator[Case]:
    """Give what may stand in the place of one file."""
    store, name = root / state, path.rpartition("/")[2]
    data = (store / path).read_bytes()
    # Nothing depends on these: without them the last process may have been killed.
    is_hint = name in (".lock", ".clean-shutdown")
    others = {f"a/{other}" for other in OF_A_DIR} | {f"a/t-0/{other}" for other in OF_A_LOG}
    for other in sorted(others - {path}):
        if (root / "closed" / other).exists():
            found = (root / "closed" / other).read_bytes()
            yield Case(state, path, f"the bytes of {other}", found, not is_hint)
    for whose, where in (
        ("another log dir's or log's", store / path.replace("a/", "b/").replace("t-0", "t-1")),
        ("another log's of the same log dir", store / path.replace("t-0", "t-2")),
        ("an older one", root / "older" / path),
        ("an earlier incarnation's", root / "earlier" / path),
    ):
        if where.exists() and where.read_bytes() != data:
            is_old = whose.startswith("an older") or path.count("/") == 1
            is_foreign = whose.startswith("another")
            is_told = (is_foreign or not is_old) and not is_hint and name != "replica-catalog"
            yield Case(state, path, whose, where.read_bytes(), is_told)
    for what, found in (
        ("nothing", b""),
        ("its first half", data[: len(data) // 2]),
        ("all but its last byte", data[:-1]),
        ("zeros", bytes(len(data))),
        *((f"the document {text}", encode(text)) for text in ("[]", "5", "null", '"x"', "{}")),
        *((f"version {text}", encode(f'{{"version": {text}}}')) for text in ("1", "2", "null")),
        ("no JSON", encode("{")),
    ):
        # The end of the catalog is torn by a crash during an append: no damage, and written anew.
        is_torn = name == "replica-catalog" and what.startswith(("its first", "all but"))
        yield Case(state, path, what, found, not (is_hint or is_torn))
    if name in ("meta.properties", "replica-catalog"):
        yield from _of_text(state, path, data)
    else:
        yield from _of_document(state, path, data, is_hint=is_hint)


def _of_document(state: str, path: str, data: bytes, *, is_hint: bool) -> Iterator[Case]:
    """Put every value into every field of a JSON document."""
    document = json.loads(data.split(b"\n")[0])
    for where in _places(document):
        for is_never, texts in ((True, NEVER), (False, PERHAPS)):
            for text in texts:
                changed = json.loads(json.dumps(document))
                at: Any = changed
                for step in where[:-1]:
                    at = at[step]
                at[where[-1]] = "<here>"
                line = json.dumps(changed).replace('"<here>"', text)
                # A text field may hold any text, the rates of a move any number.
                yield Case(
                    state, path, f"{where} is {text}", encode(line), is_never and not is_hint
                )
    for key in document:
        line = json.dumps({name: found for name, found in document.items() if name != key})
        yield Case(state, path, f"no {key}", encode(line), False)


def _places(document: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Name every field of a document, those of its lists and objects too."""
    if where:
        yield where
    if isinstance(document, dict):
        for key, found in document.items():
            yield from _places(found, (*where, key))
    elif isinstance(document, list):
        for number, found in enumerate(document[:3]):
            yield from _places(found, (*where, number))


def _of_text(state: str, path: str, data: bytes) -> Iterator[Case]:
    """Put other values into the lines of a text file whose lines have their checksum."""
    texts = ("9223372036854775808", "-1", "0", "x", "", "Infinity", "NaN", "f" * 32)
    lines = data.decode().splitlines()
    is_meta = path.endswith("meta.properties")
    for number, line in enumerate(lines[: -1 if is_meta else None]):
        parts = line.split("=") if is_meta else line.split(" ")
        for at in range(1, len(parts)):
            for text in texts:
                changed = [*parts[:at], text, *parts[at + 1 :]]
                if is_meta:
                    body = "\n".join([*lines[:number], "=".join(changed), *lines[number + 1 : -1]])
                    body += "\n"
                    body += f"checksum={xxhash.xxh3_64_hexdigest(body.encode())}\n"
                else:
                    rest = " ".join(changed[1:])
                    mark = f"{xxhash.xxh3_64_intdigest(rest.encode()):016x}"
                    body = "\n".join([*lines[:number], f"{mark} {rest}", *lines[number + 1 :]])
                    body += "\n"
                what = f"line {number} part {at} is {text!r}"
                yield Case(state, path, what, body.encode(), False)


# --- what must hold -------------------------------------------------------------------------------


def check(root: Path, case: Case, place: Path) -> None:
    """Open the store with one file harmed, as a view and as its owner."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(root / case.state, place)
    before = segments(place)
    (place / case.path).write_bytes(case.data)
    dirs = [place / "a", place / "b"]
    with LogStore.open(dirs, read_only=True) as view:
        read(view, case)
        assert len(view.describe_dirs().log_dirs) == 2
        view.describe_dirs().to_json()
    for turn in range(2):
        with LogStore.open(dirs, admin_socket=False) as store:
            missing = read(store, case)
            told = str(store.recovery_report)
            assert not missing or not store.recovery_report.is_sound, told
            if case.must_tell and not turn:
                assert is_told(store), told
    after = segments(place)
    assert {name: after.get(name, -1) for name in before} == before, "segments went"


def segments(place: Path) -> dict[str, int]:
    """Give the size of each segment."""
    found = {p.relative_to(place).as_posix(): p.stat().st_size for p in place.rglob("t-*/*.log")}
    return {name: size for name, size in found.items() if size}


def is_told(store: LogStore) -> bool:
    """Tell whether the report of an opening names anything."""
    report = store.recovery_report
    entries = [warning for entry in report.entries for warning in entry.warnings]
    return bool(report.warnings or entries or not report.is_sound)


def read(store: LogStore, case: Case) -> list[int]:
    """Read every partition whole; gives those that cannot be, of which there is one at most.

    One in the other log dir is never touched; of the harmed one all may be away.
    """
    missing = []
    for number in range(PARTITIONS):
        try:
            log = store.log("t", number)
            found = {record.offset: record.value for record in log}
        except LogStoreError as error:
            missing.append(number)
            assert number != 1, f"t-1 is in the other log dir: {error}"
            continue
        known = {offset: value(number, offset) for offset in range(log.log_end_offset)}
        assert found == {offset: known[offset] for offset in found}
        wanted = set(range(START, RECORDS))
        assert wanted <= set(found), f"t-{number}: {sorted(wanted - set(found))} not read"
    is_of_a_log = case.path.count("/") > 1
    assert missing in ([], [0]) or (missing == [0, 2] and not is_of_a_log), missing
    return missing
