"""Read and write the bytes of a journal: the file of an embedded store in each log dir.

    coordination-journal                text; each change of the store appends a line
    <16 hex> {"kind": ..., "version": 1, "store_id": ..., "zxid": 7, "znodes": 2,
              "epochs": [[1, <id>, 0]], "members": {<id>: "/disk1/logs"}}
    <16 hex> ["/a", "data", 3, 7, 2, 0, 1]              a znode as of that zxid, and so on
    <16 hex> ["/a/b", "", 6, 6, 0, 0, 0]
    <16 hex> {"copy_id": <id>}                          the id of the copy in this log dir
    <16 hex> [8, [["set", "/a", "new data"]]]           a change, and so on
    <16 hex> {"epoch": [2, <id>, 8], "members": {}}     the members from then on

Each line begins with a checksum: xxh3-64 of the rest of the line, seeded with the checksum of the
line before it (0 for the first line). So a reader notices a line that was changed, removed or
moved. The rest of a line is ASCII, so it has no zero byte. Each byte of the data of a znode is one
character of its text.

A change is synced before the next change is written. So after a crash, only the last line can be
incomplete. In at least one block of 512 bytes, all bytes of an incomplete line are missing or zero.
An incomplete line is cut off, because no caller has received the result of its change. Every other
fault counts as damage. If a line would end where a block ends, a space is added to the line. So if
a file ends where a block ends, its last line is incomplete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import xxhash

from broker.coordination.errors import CopyDamagedError, CopyVersionError, ZnodeError
from broker.coordination.members import Epoch, Membership
from broker.coordination.paths import ROOT, check_path, parent_of
from broker.coordination.tree import Draft, Node, Row, Tree
from logstore.store.start.listing import COORDINATION_NAME

JOURNAL_NAME = COORDINATION_NAME
KIND = "coordination-journal"
VERSION = 1
BLOCK_BYTES = 512
DIGEST_BYTES = 16
ZXID_MAX = 2**62
OWNER_MAX = 2**63 - 1
ID_DIGITS = 32
HEX_DIGITS = frozenset("0123456789abcdef")


class Journal(NamedTuple):
    """The content of a journal.

    Attributes:
        copy_id: the id of this copy.
        membership: the members, as this copy knows them.
        size_bytes: the position at which the next line begins. If there is an incomplete line, it
            is cut off there.
        digest: the checksum of the last line, which is the seed for the next line's checksum.
        written_bytes: the size of the part before the changes. This part was written as a whole.
        is_torn: whether the file ends with an incomplete line.
    """

    store_id: str
    copy_id: str
    membership: Membership
    tree: Tree
    size_bytes: int
    digest: int
    written_bytes: int
    is_torn: bool


# --- writing --------------------------------------------------------------------------------------


def encode_line(document: object, seed: int, position: int) -> tuple[bytes, int]:
    """Encode a line; return the line and its checksum, which is the seed for the next line."""
    text = json.dumps(document, separators=(",", ":")).encode("ascii")
    if (position + DIGEST_BYTES + len(text) + 2) % BLOCK_BYTES == 0:
        text += b" "
    digest = xxhash.xxh3_64_intdigest(text, seed)
    return b"%016x %s\n" % (digest, text), digest


def encode_change(zxid: int, rows: Sequence[Row], seed: int, position: int) -> tuple[bytes, int]:
    """Encode the line of a change."""
    change = [zxid, [[_written(field) for field in row] for row in rows]]
    return encode_line(change, seed, position)


def _written(field: object) -> object:
    return field.decode("latin-1") if isinstance(field, bytes) else field


def encode_epoch(membership: Membership, seed: int, position: int) -> tuple[bytes, int]:
    """Encode the line that begins the current epoch."""
    document = {"epoch": membership.epoch, "members": dict(membership.members)}
    return encode_line(document, seed, position)


def encode_copy_id(copy_id: str, seed: int, position: int) -> tuple[bytes, int]:
    """Encode the line with the id of a copy. This line follows the znodes."""
    return encode_line({"copy_id": copy_id}, seed, position)


def encode_znodes(store_id: str, membership: Membership, tree: Tree) -> tuple[bytes, int]:
    """Encode the lines that all copies share: the first line and the znodes.

    The second result is the checksum of the last shared line.
    """
    header = {
        "kind": KIND, "version": VERSION, "store_id": store_id, "zxid": tree.zxid,
        "znodes": len(tree.nodes), "epochs": membership.epochs,
        "members": dict(membership.members),
    }  # fmt: skip
    line, digest = encode_line(header, 0, 0)
    journal = bytearray(line)
    for path, node in sorted(tree.nodes.items()):
        line, digest = encode_line([path, *map(_written, node)], digest, len(journal))
        journal += line
    return bytes(journal), digest


# --- reading --------------------------------------------------------------------------------------


class _Reader:
    """Step through the lines of a journal."""

    def __init__(self, data: bytes, path: str) -> None:
        self.data, self.path = data, path
        self.position = self.digest = 0

    def damaged(self, reason: str) -> CopyDamagedError:
        return CopyDamagedError(self.path, self.position, reason)

    def line(self) -> Any:
        """Return what the next line says, but do not step over it; None for an incomplete line."""
        end = self.data.find(b"\n", self.position)
        start = self.position + DIGEST_BYTES
        text = self.data[start + 1 : max(end, 0)]
        digest = xxhash.xxh3_64_intdigest(text, self.digest)
        if self.data[self.position : start + 1] != b"%016x " % digest or end < start:
            return None
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise self.damaged("a line is not JSON") from None
        if document is None:
            raise self.damaged("a line is null")
        self._next, self._next_digest = end + 1, digest
        return document

    def step(self) -> None:
        """Step over the line that was read, after the caller has checked its content."""
        self.position, self.digest = self._next, self._next_digest

    def is_torn(self) -> bool:
        """Report whether the remaining bytes may be an incomplete line after a crash."""
        data, start = self.data, self.position
        if b"\n" in data[start:-1]:
            return False
        if len(data) % BLOCK_BYTES == 0:
            return True  # a complete line never ends where a block ends
        blocks = range(start // BLOCK_BYTES, -(-len(data) // BLOCK_BYTES))
        return not all(
            any(data[max(start, block * BLOCK_BYTES) : (block + 1) * BLOCK_BYTES])
            for block in blocks
        )


def decode_journal(data: bytes, path: str) -> Journal:
    """Decode a journal, and make all its changes.

    Raises:
        CopyDamagedError: a byte is wrong, or the file is of another kind.
        CopyVersionError: a later version of this library wrote the journal.
    """
    reader = _Reader(data, path)
    store_id, membership, tree, count = _header(reader)
    _znodes(reader, tree, count)
    copy_id = _copy_id(reader)
    written_bytes = reader.position
    while reader.position < len(data):
        document = reader.line()
        if document is None:
            if not reader.is_torn():
                raise reader.damaged("the checksum of a change is wrong")
            break
        if isinstance(document, dict):
            membership = _next_epoch(reader, membership, tree, document)
        else:
            _change(reader, tree, document)
        reader.step()
    is_torn = reader.position < len(data)
    end = (reader.position, reader.digest, written_bytes, is_torn)
    return Journal(store_id, copy_id, membership, tree, *end)


def _header(reader: _Reader) -> tuple[str, Membership, Tree, int]:
    document = reader.line()
    if not isinstance(document, dict) or document.get("kind") != KIND:
        empty = "the file is empty" if not reader.data else "the file does not begin like a journal"
        raise reader.damaged(empty)
    version = document.get("version")
    if type(version) is int and version > VERSION:
        raise CopyVersionError(reader.path, version)
    if version != VERSION:
        raise reader.damaged("the first line has a wrong version")
    store_id = _id(reader, document.get("store_id"))
    zxid = _number(reader, document.get("zxid"), ZXID_MAX, "zxid")
    count = _number(reader, document.get("znodes"), ZXID_MAX, "znodes")
    membership = _membership(reader, document, zxid)
    reader.step()
    return store_id, membership, Tree(zxid), count


def _id(reader: _Reader, value: object) -> str:
    if not isinstance(value, str) or len(value) != ID_DIGITS or set(value) - HEX_DIGITS:
        raise reader.damaged(f"{value!r} is not an id of {ID_DIGITS} hex digits")
    return value


def _membership(reader: _Reader, document: Mapping[str, Any], zxid: int) -> Membership:
    """Read the epochs and the members of the first line."""
    rows = document.get("epochs")
    if not isinstance(rows, list) or not rows:
        raise reader.damaged("the first line has no epochs")
    epochs = [_epoch(reader, row, zxid) for row in rows]
    for before, after in pairwise(epochs):
        if after.number != before.number + 1 or after.zxid < before.zxid:
            raise reader.damaged("the epochs are not in order")
    return Membership(tuple(epochs), _members(reader, document.get("members")))


def _epoch(reader: _Reader, row: object, zxid_max: int) -> Epoch:
    if not isinstance(row, list) or len(row) != len(Epoch._fields):
        raise reader.damaged("an epoch is not a number, an id and a zxid")
    number = _number(reader, row[0], ZXID_MAX, "number of an epoch")
    return Epoch(number, _id(reader, row[1]), _number(reader, row[2], zxid_max, "zxid of an epoch"))


def _members(reader: _Reader, found: object) -> dict[str, str]:
    if not isinstance(found, dict) or not found:
        raise reader.damaged("there are no members")
    if not all(isinstance(path, str) for path in found.values()):
        raise reader.damaged("the log dir of a member is not text")
    return {_id(reader, copy_id): path for copy_id, path in found.items()}


def _next_epoch(
    reader: _Reader, membership: Membership, tree: Tree, document: dict[str, Any]
) -> Membership:
    """Read the line that begins an epoch, and check its number and its zxid."""
    epoch = _epoch(reader, document.get("epoch"), tree.zxid)
    if epoch.number != membership.epoch.number + 1 or epoch.zxid != tree.zxid:
        raise reader.damaged("the line that begins an epoch is missing, or in a wrong place")
    return membership.follow(epoch, _members(reader, document.get("members")))


def _copy_id(reader: _Reader) -> str:
    document = reader.line()
    if not isinstance(document, dict):
        raise reader.damaged("the line with the id of the copy is missing")
    copy_id = _id(reader, document.get("copy_id"))
    reader.step()
    return copy_id


def _number(reader: _Reader, value: object, high: int, what: str) -> int:
    if type(value) is not int or not 0 <= value <= high:
        raise reader.damaged(f"{what} is not a whole number from 0 to {high}")
    return value


def _znodes(reader: _Reader, tree: Tree, count: int) -> None:
    """Read the lines of the znodes. Parents come before their children."""
    paths = set()
    for _ in range(count):
        row = reader.line()
        if not isinstance(row, list) or len(row) != len(Node._fields) + 1:
            raise reader.damaged("the line of a znode is missing or wrong")
        path, data, *numbers = _path(reader, row[0]), *row[1:]
        if path in paths or (path != ROOT and parent_of(path) not in paths):
            raise reader.damaged("a znode appears twice, or before its parent")
        highs = (tree.zxid, tree.zxid, ZXID_MAX, OWNER_MAX, ZXID_MAX)
        fields = [
            _number(reader, value, high, name)
            for value, high, name in zip(numbers, highs, Node._fields[1:], strict=True)
        ]
        paths.add(path)
        tree.put(path, Node(_data(reader, data), *fields))
        reader.step()
    if ROOT not in paths:
        raise reader.damaged("the root is missing")


def _path(reader: _Reader, path: object) -> str:
    try:
        return check_path(path)  # type: ignore[arg-type] # `check_path` checks the type
    except (TypeError, ValueError):
        raise reader.damaged(f"{path!r} is not a path") from None


def _data(reader: _Reader, text: object) -> bytes:
    if not isinstance(text, str):
        raise reader.damaged("the data of a znode is not text")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise reader.damaged("the data of a znode has a character above 255") from None


def _change(reader: _Reader, tree: Tree, document: Any) -> None:
    """Make one change of the journal.

    The zxid of the change must be one more than the previous zxid.
    """
    draft = Draft(tree)
    if not isinstance(document, list) or len(document) != 2 or document[0] != draft.zxid:
        raise reader.damaged(f"the line of change {draft.zxid} is missing or wrong")
    rows = document[1]
    if not isinstance(rows, list):
        raise reader.damaged("the rows of a change are not a list")
    try:
        for row in rows:
            _row(reader, draft, row)
    except ZnodeError as error:
        raise reader.damaged(f"a change does not fit: {error}") from None
    tree.apply(draft)


def _row(reader: _Reader, draft: Draft, row: object) -> None:
    match row:
        case ["create", path, data, owner]:
            owned = _number(reader, owner, OWNER_MAX, "owner")
            draft.create(_path(reader, path), _data(reader, data), owned)
        case ["set", path, data]:
            draft.set(_path(reader, path), _data(reader, data))
        case ["delete", path] if path != ROOT:
            draft.delete(_path(reader, path))
        case _:
            raise reader.damaged("the kind of a row of a change is not known")
