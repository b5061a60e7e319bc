"""Model what of a directory survives a power cut, by the strict reading of POSIX.

Every block of 512 bytes that was not synced survives or not by itself, and so does every change of
a directory that was not synced; a rename is atomic. Sync of a file does not make its name durable.
A sync that is made beside the writing counts from its end, for what was there at its beginning; of
one that fails nothing arrives, and no later one brings it. Real file systems forgive more, which
is why they cannot show a missing sync, and this can.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

BLOCK_BYTES = 512

Op = tuple[Any, ...]
Image = dict[str, bytes | None]  # path below the root -> bytes of a file, None for a directory


class File:
    """A file: what the process sees, and what the disk has."""

    def __init__(self, data: bytes = b"") -> None:
        self.live = bytearray(data)
        self.disk = data
        self.dirty: set[int] = set()
        self.cut_to: int | None = None
        self.begun: bytes | None = None  # what was there when the sync began that is under way
        self.since: set[int] = set()  # blocks that were written since then
        self.lost: set[int] = set()  # blocks that a failed sync has dropped: they look clean

    def write(self, position: int, data: bytes) -> None:
        if position > len(self.live):
            self.live += bytes(position - len(self.live))
        self.live[position : position + len(data)] = data
        blocks = set(range(position // BLOCK_BYTES, -(-(position + len(data)) // BLOCK_BYTES)))
        self.dirty |= blocks
        self.since |= blocks
        self.lost -= blocks

    def truncate(self, size: int) -> None:
        self.begun = None  # nobody knows what of it that sync still meets
        if size < len(self.live):
            del self.live[size:]
            self.cut_to = size if self.cut_to is None else min(self.cut_to, size)
        else:
            self.write(size, b"")
            self.live += bytes(size - len(self.live))
        self.dirty.add(max(size - 1, 0) // BLOCK_BYTES)

    def sync(self) -> None:
        disk = bytearray(self.live)
        for block in self.lost:
            start, end = block * BLOCK_BYTES, min((block + 1) * BLOCK_BYTES, len(disk))
            disk[start:end] = self.disk[start:end].ljust(max(end - start, 0), b"\0")
        self.disk, self.cut_to, self.begun = bytes(disk), None, None
        self.dirty.clear()

    def begin_sync(self) -> None:
        self.begun, self.since = bytes(self.live), set()

    def end_sync(self) -> None:
        if self.begun is not None:
            self.disk, self.cut_to, self.begun = self.begun, None, None
            self.dirty = self.since

    def fail_sync(self) -> None:
        self.begun = None
        self.lost |= self.dirty
        self.dirty = set()

    def after_crash(self, rng: random.Random, keep: float) -> bytes:
        """Draw what the disk has after a power cut."""
        image = bytearray(self.disk)
        if self.cut_to is not None and rng.random() < 0.5:
            del image[self.cut_to :]
        for block in sorted(self.dirty):
            start = block * BLOCK_BYTES
            part = self.live[start : start + BLOCK_BYTES]
            if part and rng.random() < keep:
                if len(image) < start:
                    image += bytes(start - len(image))
                image[start : start + len(part)] = part
        if len(image) < len(self.live) and rng.random() < 0.2:
            image += bytes(len(self.live) - len(image))  # the size arrived, the data did not
        return bytes(image)

    def with_blocks(self, kept: Collection[tuple[int, int]]) -> bytes:
        """Give what the disk has when just these of the un-synced blocks survive."""
        image = bytearray(self.disk)
        for block in sorted(self.dirty):
            start = block * BLOCK_BYTES
            part = self.live[start : start + BLOCK_BYTES]
            if part and (id(self), block) in kept:
                if len(image) < start:
                    image += bytes(start - len(image))
                image[start : start + len(part)] = part
        return bytes(image)


class Directory:
    """A directory: names the process sees, names on the disk."""

    def __init__(self) -> None:
        self.live: dict[str, Node] = {}
        self.disk: dict[str, Node] = {}


Node = File | Directory
Change = tuple[Directory, str, Node | None]


class CrashModel:
    """A file system below one root; `apply` does an operation, `crash` draws an image.

    Attributes:
        files: the files by the number that a record gives them; those of the image come first.
    """

    def __init__(self, image: Image | None = None) -> None:
        self.root = Directory()
        self.files: dict[int, File] = {}
        self.changes: list[list[Change]] = []  # of directories, not synced yet
        for path, data in sorted((image or {}).items()):
            parent, name = self.parent(path)
            node: Node = Directory() if data is None else self.make(len(self.files), data)
            parent.live[name] = parent.disk[name] = node

    def make(self, number: int, data: bytes = b"") -> File:
        self.files[number] = File(data)
        return self.files[number]

    def find(self, path: str) -> Node:
        node: Node = self.root
        for name in path.split("/") if path else ():
            assert isinstance(node, Directory)
            node = node.live[name]
        return node

    def parent(self, path: str) -> tuple[Directory, str]:
        directory, _, name = path.rpartition("/")
        node = self.find(directory)
        assert isinstance(node, Directory)
        return node, name

    def change(self, *changes: Change) -> None:
        for directory, name, node in changes:
            if node is None:
                directory.live.pop(name, None)
            else:
                directory.live[name] = node
        self.changes.append(list(changes))

    def apply(self, op: Op) -> None:
        """Do one recorded operation; the first word says which."""
        kind, target, *rest = op
        if kind == "create":
            parent, name = self.parent(target)
            self.change((parent, name, self.make(rest[0])))
        elif kind == "mkdir":
            parent, name = self.parent(target)
            self.change((parent, name, Directory()))
        elif kind == "remove":
            parent, name = self.parent(target)
            self.change((parent, name, None))
        elif kind in ("rename", "link"):
            (old, old_name), (new, new_name) = self.parent(target), self.parent(rest[0])
            gone: list[Change] = [(old, old_name, None)] if kind == "rename" else []
            self.change(*gone, (new, new_name, old.live[old_name]))
        elif kind == "write":
            self.files[target].write(*rest)
        elif kind == "truncate":
            self.files[target].truncate(*rest)
        elif kind == "sync":
            self.files[target].sync()
        elif kind == "begin sync":
            self.files[target].begin_sync()
        elif kind == "end sync":
            self.files[target].end_sync()
        elif kind == "fail sync":
            self.files[target].fail_sync()
        elif kind == "sync dir":
            node = self.find(target)
            done = [c for c in self.changes if any(directory is node for directory, *_ in c)]
            self.commit(done)
            self.changes = [c for c in self.changes if c not in done]

    def commit(self, many: list[list[Change]]) -> None:
        for changes in many:
            for directory, name, node in changes:
                if node is None:
                    directory.disk.pop(name, None)
                else:
                    directory.disk[name] = node

    def settle(self) -> None:
        """Make all that was done durable, as if the operating system had had the time for it."""
        for file in self.files.values():
            file.sync()
        self.commit(self.changes)
        self.changes = []

    def lost(self) -> Image:
        """Give what a power cut leaves that takes all that is not synced."""
        image: Image = {}
        self.draw(self.root, "", image, lambda file: file.disk)
        return image

    def crash(self, rng: random.Random) -> Image:
        """Draw one of the images that a power cut at this moment may leave."""
        keep, keep_names = rng.choice(((0, 0), (1, 1), (0, 1), (1, 0), (0.5, 0.5), (0.8, 0.9)))
        saved = self.save()
        if rng.random() < 0.3:  # a journal: what survives is a prefix
            self.commit(self.changes[: rng.randint(0, len(self.changes))])
        else:
            self.commit([c for c in self.changes if rng.random() < keep_names])
        image: Image = {}
        self.draw(self.root, "", image, lambda file: file.after_crash(rng, keep))
        for directory, names in saved:
            directory.disk = names
        return image

    def crashes(self, rng: random.Random, limit: int) -> Iterator[Image]:
        """Give every image that a power cut may leave, or `limit` drawn ones when there are more.

        All of them: each un-synced name change and each un-synced block, there or not.
        """
        files = [file for file in self.files.values() if file.dirty or file.cut_to is not None]
        blocks = [(file, block) for file in files for block in sorted(file.dirty)]
        has_cut = any(file.cut_to is not None for file in files)
        count = len(self.changes) + len(blocks)
        if has_cut or count >= limit.bit_length() - 1:
            for _ in range(limit):
                yield self.crash(rng)
            return
        for bits in range(1 << count):
            saved = self.save()
            self.commit([c for i, c in enumerate(self.changes) if bits >> i & 1])
            kept = {
                (id(file), block)
                for i, (file, block) in enumerate(blocks, len(self.changes))
                if bits >> i & 1
            }
            image: Image = {}
            self.draw(self.root, "", image, partial(File.with_blocks, kept=kept))
            for directory, names in saved:
                directory.disk = names
            yield image

    def save(self) -> list[tuple[Directory, dict[str, Node]]]:
        found = {id(d): d for changes in self.changes for d, _, _ in changes}
        return [(directory, dict(directory.disk)) for directory in found.values()]

    def draw(
        self, node: Directory, path: str, image: Image, bytes_of: Callable[[File], bytes]
    ) -> None:
        for name, child in sorted(node.disk.items()):
            where = f"{path}/{name}" if path else name
            if isinstance(child, File):
                image[where] = bytes_of(child)
            else:
                image[where] = None
                self.draw(child, where, image, bytes_of)
