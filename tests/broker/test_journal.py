"""Test the bytes of the journal of an embedded coordination store."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import xxhash

from broker.coordination import journal
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import CopyDamagedError, CopyVersionError
from broker.coordination.members import Epoch, Membership
from broker.coordination.tree import Draft, EmbeddedSettings, Tree
from broker.coordination.verbs import Create, Delete, Operation, Set
from logstore import LogStore

STORE_ID, COPY_ID = "0" * 32, "c" * 32
MEMBERSHIP = Membership((Epoch(3, "e" * 32, 0), Epoch(4, "f" * 32, 0)), {COPY_ID: "/größe"})
NEXT = MEMBERSHIP.follow(Epoch(5, "d" * 32, 3), {"a" * 32: "/a", COPY_ID: "/c"})
CHANGES: list[list[Operation]] = [
    [Create("/a", b"one"), Create("/a/b", b"\0\xff\n"), Create("/e", ephemeral=True)],
    [Set("/a", b"two" * 100)],
    [Create("/größe", b""), Delete("/a/b")],
    [Create("/s-", b"x" * 700, sequence=True), Set("/", b"root")],
]


def changed(tree: Tree, operations: list[Operation]) -> Draft:
    """Make a change of a tree."""
    draft = Draft(tree)
    draft.perform(operations, owner=9)
    tree.apply(draft)
    return draft


def whole(tree: Tree) -> tuple[bytes, int]:
    """Make a journal without changes, and return the checksum of its last line."""
    data, digest = journal.encode_znodes(STORE_ID, MEMBERSHIP, tree)
    line, digest = journal.encode_copy_id(COPY_ID, digest, len(data))
    return data + line, digest


def example(at: int = 2) -> tuple[bytes, Tree]:
    """Make a journal that was rewritten after some changes, and the tree at its end."""
    tree = Tree()
    for operations in CHANGES[:at]:
        changed(tree, operations)
    data, digest = whole(tree)
    for operations in CHANGES[at:]:
        draft = changed(tree, operations)
        line, digest = journal.encode_change(draft.zxid, draft.rows, digest, len(data))
        data += line
        if tree.zxid == NEXT.epoch.zxid:
            line, digest = journal.encode_epoch(NEXT, digest, len(data))
            data += line
    return data, tree


@pytest.mark.parametrize("at", range(len(CHANGES) + 1))
def test_a_journal_is_read_as_it_was_written(at: int) -> None:
    """A journal can be read again, wherever it was rewritten."""
    data, tree = example(at)
    found = journal.decode_journal(data, "journal")
    assert (found.tree.nodes, found.tree.zxid) == (tree.nodes, len(CHANGES))
    assert (found.tree.children, found.tree.size_bytes) == (tree.children, tree.size_bytes)
    assert (found.store_id, found.size_bytes, found.is_torn) == (STORE_ID, len(data), False)
    assert (found.copy_id, found.membership) == (COPY_ID, NEXT if at < 3 else MEMBERSHIP)


def test_no_flipped_bit_is_believed() -> None:
    """If any bit of any byte flips, even in the last line, the file is refused."""
    data, _ = example()
    for position in range(len(data)):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[position] ^= 1 << bit
            with pytest.raises(CopyDamagedError) as caught:
                journal.decode_journal(bytes(wrong), "journal")
            assert caught.value.path == "journal"
            assert caught.value.position <= position


def test_no_line_is_missing_doubled_or_in_another_place() -> None:
    """Each line must be present, once, in its place, except the last lines after a crash."""
    data, _ = example()
    lines = data.splitlines(keepends=True)
    for place in range(len(lines) - 1):
        for wrong in (
            lines[:place] + lines[place + 1 :],
            [*lines[: place + 1], *lines[place:]],
            [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]],
        ):
            with pytest.raises(CopyDamagedError):
                journal.decode_journal(b"".join(wrong), "journal")


def test_an_incomplete_last_line_is_cut_off() -> None:
    """All incomplete lines that a crash can leave are cut: zero blocks, and ends at a block."""
    data, _ = example()
    start = data.rindex(b"\n", 0, len(data) - 1) + 1
    whole = journal.decode_journal(data[:start], "journal")
    rng = random.Random(1)
    for _ in range(200):
        torn = bytearray(data)
        blocks = range(start // 512, -(-len(data) // 512))
        for block in rng.sample(blocks, rng.randint(1, len(blocks))):
            begin, end = max(start, block * 512), min(len(data), (block + 1) * 512)
            torn[begin:end] = bytes(end - begin)
        if rng.random() < 0.5:
            del torn[rng.choice(blocks) * 512 :]
        if len(torn) <= start:
            continue
        found = journal.decode_journal(bytes(torn), "journal")
        assert found.is_torn
        assert (found.size_bytes, found.digest) == (start, whole.digest)
        assert found.tree.nodes == whole.tree.nodes


def test_zeros_before_the_last_line_are_damage() -> None:
    """A crash loses blocks of the last line only, because earlier lines were synced."""
    tree = Tree()
    data, digest = whole(tree)
    for number in range(30):
        draft = changed(tree, [Create(f"/{number}", b"x" * 90)])
        line, digest = journal.encode_change(draft.zxid, draft.rows, digest, len(data))
        data += line
    for block in range(1, len(data) // 512 - 1):
        wrong = bytearray(data)
        wrong[block * 512 : (block + 1) * 512] = bytes(512)
        assert b"\n" in wrong[(block + 1) * 512 : -1]
        with pytest.raises(CopyDamagedError):
            journal.decode_journal(bytes(wrong), "journal")


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_last_line_that_ends_inside_a_block_is_damage(cut: int) -> None:
    """A crash never leaves a part of a block, so bytes were lost in another way."""
    data, _ = example()
    assert (len(data) - cut) % 512
    with pytest.raises(CopyDamagedError):
        journal.decode_journal(data[:-cut], "journal")


def test_no_whole_line_ends_at_the_end_of_a_block() -> None:
    """So a file that ends at the end of a block is recognised as incomplete."""
    for size in range(480):
        tree = Tree()
        draft = changed(tree, [Create("/a", b"x" * size)])
        data, digest = whole(Tree())
        line, _ = journal.encode_change(draft.zxid, draft.rows, digest, len(data))
        assert (len(data) + len(line)) % 512
        assert journal.decode_journal(data + line, "journal").tree.nodes == tree.nodes


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\0" * 600, b"x" * 600, b"PAR1", b'{"version": 1}\nxxh3-64 0\n']
)
def test_a_file_of_another_kind_is_refused(data: bytes) -> None:
    """A file of another kind is not mistaken for an empty store."""
    with pytest.raises(CopyDamagedError) as caught:
        journal.decode_journal(data, "journal")
    assert caught.value.position == 0


EPOCH: list[Any] = [3, "e" * 32, 0]
HEADER: dict[str, Any] = {
    "kind": journal.KIND, "version": 1, "store_id": STORE_ID, "zxid": 5, "znodes": 1,
    "epochs": [EPOCH], "members": {COPY_ID: "/c"},
}  # fmt: skip
ROOT, ID = ["/", "", 0, 0, 0, 0, 0], {"copy_id": COPY_ID}
NEXT_EPOCH: dict[str, Any] = {"epoch": [4, "f" * 32, 5], "members": {COPY_ID: "/c"}}
WRONG: dict[str, list[Any]] = {
    "no object": [[1]],
    "null": [None],
    "kind": [{**HEADER, "kind": "x"}],
    "version": [{**HEADER, "version": "1"}],
    "store id": [{**HEADER, "store_id": 5}, ROOT],
    "short store id": [{**HEADER, "store_id": "5"}, ROOT],
    "zxid": [{**HEADER, "zxid": -1}, ROOT],
    "a true zxid": [{**HEADER, "zxid": True}, ROOT],
    "a missing count": [{**HEADER, "znodes": None}, ROOT],
    "no root": [{**HEADER, "znodes": 0}],
    "a short znode": [HEADER, ROOT[:-1]],
    "no znode": [HEADER, {"path": "/"}],
    "a path that is no text": [{**HEADER, "znodes": 2}, ROOT, [7, *ROOT[1:]]],
    "a bad path": [{**HEADER, "znodes": 2}, ROOT, ["/a/", *ROOT[1:]]],
    "no parent": [{**HEADER, "znodes": 2}, ROOT, ["/a/b", *ROOT[1:]]],
    "twice": [{**HEADER, "znodes": 2}, ROOT, ROOT],
    "an unhashable path": [{**HEADER, "znodes": 2}, ROOT, [["/"], *ROOT[1:]]],
    "data above a byte": [HEADER, ["/", "€", 0, 0, 0, 0, 0]],
    "data that is no text": [HEADER, ["/", 3, 0, 0, 0, 0, 0]],
    "an mzxid that is not reached": [HEADER, ["/", "", 0, 6, 0, 0, 0]],
    "a fraction": [HEADER, ["/", "", 0, 0, 0.5, 0, 0]],
    "a change of another zxid": [HEADER, ROOT, ID, [7, []]],
    "a change without rows": [HEADER, ROOT, ID, [6]],
    "rows of no list": [HEADER, ROOT, ID, [6, {}]],
    "an unknown row": [HEADER, ROOT, ID, [6, [["move", "/a"]]]],
    "a short row": [HEADER, ROOT, ID, [6, [["create", "/a"]]]],
    "a row of no list": [HEADER, ROOT, ID, [6, ["create"]]],
    "an owner of no number": [HEADER, ROOT, ID, [6, [["create", "/a", "", "x"]]]],
    "a creation that does not fit": [HEADER, ROOT, ID, [6, [["create", "/", "", 0]]]],
    "a write that does not fit": [HEADER, ROOT, ID, [6, [["set", "/a", ""]]]],
    "a deletion of the root": [HEADER, ROOT, ID, [6, [["delete", "/"]]]],
    "a deletion of a bad path": [HEADER, ROOT, ID, [6, [["delete", 6]]]],
    "no epochs": [{**HEADER, "epochs": []}, ROOT],
    "an epoch of no list": [{**HEADER, "epochs": [7]}, ROOT],
    "an epoch that is not reached": [{**HEADER, "epochs": [[3, "e" * 32, 6]]}, ROOT],
    "an epoch without its id": [{**HEADER, "epochs": [[3, "e", 0]]}, ROOT],
    "an epoch with a wrong id": [{**HEADER, "epochs": [[3, "E" * 32, 0]]}, ROOT],
    "a missing epoch": [{**HEADER, "epochs": [EPOCH, [5, "f" * 32, 0]]}, ROOT],
    "an epoch before the one before": [
        {**HEADER, "epochs": [[3, "e" * 32, 2], [4, "f" * 32, 1]]},
        ROOT,
    ],
    "no members": [{**HEADER, "members": {}}, ROOT],
    "members of no dict": [{**HEADER, "members": [COPY_ID]}, ROOT],
    "a member without its id": [{**HEADER, "members": {"c": "/c"}}, ROOT],
    "a log dir that is no text": [{**HEADER, "members": {COPY_ID: 7}}, ROOT],
    "no id of the copy": [HEADER, ROOT],
    "an id of the copy of no dict": [HEADER, ROOT, [COPY_ID]],
    "a wrong id of the copy": [HEADER, ROOT, {"copy_id": "x"}],
    "a change in place of the id": [HEADER, ROOT, [6, []]],
    "an epoch of another number": [HEADER, ROOT, ID, {**NEXT_EPOCH, "epoch": [5, "f" * 32, 5]}],
    "an epoch of another zxid": [HEADER, ROOT, ID, {**NEXT_EPOCH, "epoch": [4, "f" * 32, 4]}],
    "an epoch without members": [HEADER, ROOT, ID, {**NEXT_EPOCH, "members": {}}],
    "a line of no known kind": [HEADER, ROOT, ID, {}],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_field_is_checked_also_if_the_checksums_hold(name: str) -> None:
    """Types, ranges, parents and the order of changes are checked, even with right checksums."""
    data, digest = b"", 0
    for document in WRONG[name]:
        line, digest = journal.encode_line(document, digest, len(data))
        data += line
    with pytest.raises(CopyDamagedError) as caught:
        journal.decode_journal(data, "journal")
    assert caught.value.reason


def test_a_later_version_is_refused_by_its_number() -> None:
    """The error names the version, and the file is kept for the later library."""
    line, _ = journal.encode_line({**HEADER, "version": 2}, 0, 0)
    with pytest.raises(CopyVersionError) as caught:
        journal.decode_journal(line, "journal")
    assert caught.value.version == 2


def test_a_second_reader_finds_the_same_znodes() -> None:
    """A reader that was written from the document alone finds the same znodes."""
    data, tree = example()
    digest, documents = 0, []
    for line in data.decode("ascii").split("\n")[:-1]:
        text = line[17:]
        digest = xxhash.xxh3_64_intdigest(text.encode(), digest)
        assert line[:17] == f"{digest:016x} "
        documents.append(json.loads(text))
    header, *rest = documents
    znodes = {row[0]: row[1] for row in rest[: header["znodes"]]}
    assert rest[header["znodes"]] == {"copy_id": COPY_ID}
    for document in rest[header["znodes"] + 1 :]:
        if isinstance(document, dict):
            assert document == {"epoch": list(NEXT.epoch), "members": NEXT.members}
            continue
        zxid, rows = document
        header["zxid"] += 1
        assert zxid == header["zxid"]
        for kind, path, *fields in rows:
            if kind == "delete":
                del znodes[path]
            else:
                znodes[path] = fields[0]
    assert znodes == {path: node.data.decode("latin-1") for path, node in tree.nodes.items()}


def test_regression_the_journal_is_not_foreign_in_a_log_dir(tmp_path: Path) -> None:
    """A start ignores the journal without a warning, and removes an unfinished new one."""
    path, log_dir = tmp_path / "a" / journal.JOURNAL_NAME, tmp_path / "a"
    with LogStore.open([log_dir], admin_socket=False), EmbeddedStore([str(log_dir)]):
        pass
    unfinished = path.with_name(f"{path.name}.0123abcd.tmp")
    unfinished.write_bytes(b"x")
    before = path.read_bytes()
    with LogStore.open([log_dir], admin_socket=False) as store:
        assert store.recovery_report.warnings == []
    assert path.read_bytes() == before
    assert not unfinished.exists()


def test_only_the_owner_reads_a_journal(tmp_path: Path) -> None:
    """Only the owner may read the keys of passwords, even after the journal was rewritten."""
    path = tmp_path / journal.JOURNAL_NAME
    with EmbeddedStore([str(tmp_path)], EmbeddedSettings(rewrite_bytes_min=1000)) as store:
        session = store.connect()
        assert path.stat().st_mode & 0o777 == 0o600
        session.create("/a", b"x")
        for number in range(300):
            session.set("/a", b"%d" % number * 1000)
        assert path.stat().st_size < 200 * 1000, "it was not written anew"
        assert path.stat().st_mode & 0o777 == 0o600
