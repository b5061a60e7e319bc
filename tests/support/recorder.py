"""Record every call that changes the disk, to replay it in a model of power cuts.

The engine runs on a real directory meanwhile; the record holds the calls in their order, and
between them the marks that the test sets (what was acknowledged when).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logstore.disk import files

from .crash_model import Image, Op

RECORDED = (
    "open_file", "pwrite", "pwritev", "ftruncate", "sendfile", "fsync", "fdatasync",
    "rename", "unlink", "rmdir", "mkdir", "link",
)  # fmt: skip


class Recorder:
    """Replaces the calls of `disk.files` while it is entered.

    Attributes:
        ops: what was done, for `CrashModel.apply`; marks are ("mark", anything).
    """

    def __init__(self, root: Path, image: Image | None = None) -> None:
        self.root = os.path.realpath(root)
        self.image = image
        self.ops: list[Op] = []
        self.fds: dict[int, int | str] = {}  # a file's number, or a directory's path
        self._lock = threading.RLock()
        self._originals: dict[str, Callable[..., Any]] = {}
        paths = [path for path, data in sorted((image or {}).items()) if data is not None]
        self.numbers = {path: number for number, path in enumerate(paths)}
        self.count = len(paths)
        self._is_ending = False  # whether the sync that is made now ends one that was begun

    def __enter__(self) -> Recorder:
        for name in RECORDED:
            self._originals[name] = getattr(files, name)
            setattr(files, name, self._wrapper(name, self._originals[name]))
        return self

    def __exit__(self, *_: object) -> None:
        for name, original in self._originals.items():
            setattr(files, name, original)

    def mark(self, what: object) -> None:
        """Note what the program knows by now."""
        with self._lock:
            self.ops.append(("mark", what))

    # --- a sync beside the writing ----------------------------------------------------------------

    def begin_sync(self, fd: int) -> None:
        """Note that a file's sync has begun, which goes on beside what follows."""
        self.ops.append(("begin sync", self.fds[fd]))

    def end_sync(self, make: Callable[[], object]) -> None:
        """Make the sync of a file that was begun, and note its end."""
        self._is_ending = True
        try:
            make()
        finally:
            self._is_ending = False

    def fail_sync(self, fd: int) -> None:
        """Note that a file's sync fails: what it was to write is dropped."""
        self.ops.append(("fail sync", self.fds[fd]))

    # --- the calls --------------------------------------------------------------------------------

    def _wrapper(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        note = getattr(self, f"_note_{name}")

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                is_new = name == "open_file" and not os.path.lexists(args[0])
                result = original(*args, **kwargs)
                note(result, is_new, *args)
                return result

        return call

    def _path(self, path: Any) -> str | None:
        full = os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)
        if os.path.realpath(path) == self.root:
            return ""
        return full[len(self.root) + 1 :] if full.startswith(self.root + "/") else None

    def _note_open_file(self, fd: int, is_new: bool, path: Any, flags: int, *_: Any) -> None:
        where = self._path(path)
        if where is None:
            self.fds.pop(fd, None)
        elif os.path.isdir(path):
            self.fds[fd] = where
        else:
            if is_new:
                self.numbers[where] = self.count
                self.count += 1
                self.ops.append(("create", where, self.numbers[where]))
            elif flags & os.O_TRUNC:
                self.ops.append(("truncate", self.numbers[where], 0))
            self.fds[fd] = self.numbers[where]

    def _write(self, fd: int, position: int, data: bytes) -> None:
        number = self.fds.get(fd)
        if isinstance(number, int):
            self.ops.append(("write", number, position, data))

    def _note_pwrite(self, done: int, _: bool, fd: int, data: bytes, position: int) -> None:
        self._write(fd, position, bytes(data)[:done])

    def _note_pwritev(self, done: int, _: bool, fd: int, data: Any, position: int) -> None:
        self._write(fd, position, b"".join(data)[:done])

    def _note_sendfile(self, done: int, _: bool, fd: int, *rest: Any) -> None:
        position = os.lseek(fd, 0, os.SEEK_CUR) - done
        with open(f"/proc/self/fd/{fd}", "rb") as file:
            file.seek(position)
            self._write(fd, position, file.read(done))

    def _note_ftruncate(self, _: Any, __: bool, fd: int, size: int) -> None:
        if isinstance(self.fds.get(fd), int):
            self.ops.append(("truncate", self.fds[fd], size))

    def _note_fsync(self, _: Any, __: bool, fd: int) -> None:
        target = self.fds.get(fd)
        if target is not None:
            of_file = "end sync" if self._is_ending else "sync"
            self.ops.append((of_file if isinstance(target, int) else "sync dir", target))

    _note_fdatasync = _note_fsync

    def _note_rename(self, _: Any, __: bool, old: Any, new: Any) -> None:
        source, target = self._path(old), self._path(new)
        if source is None and target is None:
            return  # the owner's socket
        assert source is not None and target is not None
        self.ops.append(("rename", source, target))
        for path in [p for p in self.numbers if p == source or p.startswith(source + "/")]:
            self.numbers[target + path[len(source) :]] = self.numbers.pop(path)

    def _note_unlink(self, _: Any, __: bool, path: Any) -> None:
        where = self._path(path)
        if where is not None:
            self.numbers.pop(where, None)
            self.ops.append(("remove", where))

    _note_rmdir = _note_unlink

    def _note_mkdir(self, _: Any, __: bool, path: Any, *rest: Any) -> None:
        where = self._path(path)
        if where:
            self.ops.append(("mkdir", where))

    def _note_link(self, _: Any, __: bool, old: Any, new: Any) -> None:
        source, target = self._path(old), self._path(new)
        assert source is not None and target is not None
        self.ops.append(("link", source, target))
        self.numbers[target] = self.numbers[source]


def image_of(root: Path) -> Image:
    """Read a directory as an image."""
    found: Image = {}
    for path in sorted(root.rglob("*")):
        found[str(path.relative_to(root))] = None if path.is_dir() else path.read_bytes()
    return found


def lay_out(image: Image, root: Path) -> None:
    """Write an image into a directory."""
    os.makedirs(root)
    for path, data in sorted(image.items()):
        if data is None:
            os.mkdir(f"{root}/{path}")
        else:
            with open(f"{root}/{path}", "wb", buffering=0) as file:
                file.write(data)
