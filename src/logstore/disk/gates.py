"""Count the calls under way that can change a log dir, and refuse them once it was released.

Each log dir has a `Gate`. Each system call that changes what another process would read passes it:
a write, a truncation, a rename, a link, a removal, a new directory, a new or emptied file. If the
log dir is released, its gate closes:

    a call that begins later                raises LetGoError, and the disk is not called
    a call that is under way                ends as the disk wants
    the last of those calls, at its end     gives the lock of the log dir back
    no such call is under way               the one that closes the gate gives the lock back

So no write of the old owner arrives after the lock is free. A call that failed is not under way any
more and delays no thread. A sync is not waited for, as it changes nothing that another process can
read. If it returns late, it raises LetGoError, and so does a call that changed a name: its thread
takes no further step. Reads and closes pass freely.

A descriptor belongs to the gate under which it was opened. A path belongs to the gate that this
process opened last for its log dir. So a closed gate stays known until this process takes the log
dir again, or until the log dir belongs to no store of this process any more (it was removed, or its
store was closed) and no call to it is under way.

Threads: entering a gate writes first and then reads, and so does closing it. One of the two sees
the other.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple
from weakref import ref

from logstore.disk.calls import calls_to

Rest = TypeVarTuple("Rest")
Result = TypeVar("Result")
Data = TypeVar("Data")

# A file opened with these flags is changed by the opening.
_CHANGING = os.O_TRUNC | os.O_EXCL


class LetGoError(OSError):
    """Raised if the log dir was released: this process does not change it any more."""


class Change:
    """A call by path that changes a log dir, or several calls; a context manager.

    Its end raises nothing, so that a descriptor opened meanwhile is not lost; `_pass` raises then.
    """

    __slots__ = ("__weakref__", "_entry", "_gate")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._entry = ref(self)

    def __enter__(self) -> None:
        """Begin; raises LetGoError."""
        self._gate.under_way.add(self._entry)
        if self._gate.is_closed:
            self.__exit__()
            raise self._gate.error()

    def __exit__(self, *_: object) -> None:
        """End; the last call gives the log dir back if its gate was closed meanwhile."""
        self._gate.under_way.discard(self._entry)
        if self._gate.is_closed:
            self._gate.close()


class Gate:
    """The passage for the calls that change one log dir.

    Attributes:
        under_way: the calls by path that are under way. They are held weakly: if Ctrl-C comes
            between the lines of an end, the call is over nevertheless.
        is_closed: the log dir was released.
        is_left: the log dir belongs to no store of this process any more.
    """

    __slots__ = ("__weakref__", "_give_back", "is_closed", "is_left", "path", "under_way")

    def __init__(self, path: str, give_back: Callable[[], None]) -> None:
        """Make an open gate.

        Args:
            give_back: frees the log dir; several threads may call it at once.
        """
        self.path = path
        self.under_way: set[ref[Change]] = set()
        self.is_closed = self.is_left = False
        self._give_back = give_back

    def close(self) -> bool:
        """Let no more calls pass; give the log dir back and return True if none is under way."""
        self.is_closed = True
        if self._is_passed():
            return False
        self._give_back()
        return True

    def _is_passed(self) -> bool:
        """Check whether a call that changes the log dir is under way."""
        is_writing = any(one.is_written and one.gate is self for one in list(_of_fd.values()))
        return is_writing or any(entry() is not None for entry in tuple(self.under_way))

    def is_forgotten(self) -> bool:
        """Forget the gate if it guards nothing any more; returns whether it was forgotten.

        A thread that hangs in a read may continue with a change by path. So a registered call of
        any kind counts here.
        """
        if not self.is_left or not self.is_closed or self._is_passed() or calls_to(self.path):
            return False
        forget(self)
        return True

    def error(self) -> LetGoError:
        """Make the error of a call that may not pass."""
        text = (
            "this process has released the log dir, so it changes nothing there: reopen the log "
            "dir in its store; if it was removed or its store was closed, a call to its disk "
            "still hangs: try again once the disk answers, or end the process"
        )
        return LetGoError(errno.ESTALE, text, self.path)


class Opened:
    """A descriptor below a log dir, until it is closed.

    Attributes:
        is_written: a call that changes its file is under way. No two threads make one at once.
    """

    __slots__ = ("gate", "is_written")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.is_written = False


# By the path of the log dir, and by descriptor.
_of_dir: dict[str, ref[Gate]] = {}
_of_fd: dict[int, Opened] = {}


def know(gate: Gate, fd: int) -> None:
    """Make the calls of this process below a log dir pass a gate from now on.

    Args:
        fd: a descriptor that was opened before.
    """
    _of_dir[gate.path] = ref(gate, _forget_dead)
    _of_fd[fd] = Opened(gate)


def forget(gate: Gate) -> None:
    """Let the calls below a log dir pass no gate any more, unless a later gate replaced it."""
    entry = _of_dir.get(gate.path)
    if entry is not None and entry() is gate:
        _of_dir.pop(gate.path, None)


def _forget_dead(entry: ref[Gate]) -> None:
    for path, other in list(_of_dir.items()):
        if other is entry:
            _of_dir.pop(path, None)


def gate_of(path: str) -> Gate | None:
    """Give the gate of the log dir that a path is in; None if this process has none."""
    end = path.rfind("/") if _of_dir else 0
    while end > 0:
        entry = _of_dir.get(path[:end])
        gate = None if entry is None else entry()
        if gate is not None and not (gate.is_left and gate.is_forgotten()):
            return gate
        end = path.rfind("/", 0, end)
    return None


def _pass(gate: Gate, call: Callable[[*Rest], Result], *args: *Rest) -> Result:
    """Make a call that changes names; raises LetGoError, also if the call returned late."""
    with Change(gate):
        result = call(*args)
    if gate.is_closed:
        raise gate.error()
    return result


# --- what `files` wraps its bare calls in ---------------------------------------------------------


def changing_fd(call: Callable[[int, *Rest], Result]) -> Callable[[int, *Rest], Result]:
    """Let a call that changes the file of its first argument pass the gate of that file."""

    def change(fd: int, /, *args: *Rest) -> Result:
        opened = _of_fd.get(fd)
        if opened is None:
            return call(fd, *args)
        gate = opened.gate
        opened.is_written = True
        try:
            if gate.is_closed:
                raise gate.error()
            return call(fd, *args)
        finally:
            opened.is_written = False
            if gate.is_closed:
                gate.close()

    return change


def writing(call: Callable[[int, Data, int], int]) -> Callable[[int, Data, int], int]:
    """Do what `changing_fd` does, for an append: 0.11 us instead of 0.3 us each."""

    def write(fd: int, data: Data, position: int, /) -> int:
        opened = _of_fd.get(fd)
        if opened is None:
            return call(fd, data, position)
        opened.is_written = True
        try:
            if opened.gate.is_closed:
                raise opened.gate.error()
            return call(fd, data, position)
        finally:
            opened.is_written = False
            if opened.gate.is_closed:
                opened.gate.close()

    return write


def syncing(call: Callable[[int], None]) -> Callable[[int], None]:
    """Make a sync start and return only while its log dir is not released."""

    def sync(fd: int, /) -> None:
        opened = _of_fd.get(fd)
        if opened is not None and opened.gate.is_closed:
            raise opened.gate.error()
        call(fd)
        if opened is not None and opened.gate.is_closed:
            raise opened.gate.error()

    return sync


def changing_name(call: Callable[..., None]) -> Callable[..., None]:
    """Let a call that changes the name of its first argument pass the gate of its log dir."""

    def change(path: str, /, *args: int) -> None:
        gate = gate_of(path)
        if gate is None:
            return call(path, *args)
        return _pass(gate, call, path, *args)

    return change


def changing_two_names(call: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """Let a call that makes its second argument a name pass that name's log dir's gate."""

    def change(path: str, target: str, /) -> None:
        gate = gate_of(target) or gate_of(path)
        if gate is None:
            return call(path, target)
        return _pass(gate, call, path, target)

    return change


def opening(call: Callable[[str, int, int], int], mode: int) -> Callable[..., int]:
    """Record which gate a descriptor belongs to; a call that makes or empties a file passes it."""

    def open_file(path: str, flags: int, mode: int = mode) -> int:
        gate = gate_of(path)
        if gate is None:
            fd = call(path, flags, mode)
            _of_fd.pop(fd, None)
            return fd
        if flags & _CHANGING:
            with Change(gate):
                fd = call(path, flags, mode)
        else:
            fd = call(path, flags, mode)
        _of_fd[fd] = Opened(gate)
        return fd

    return open_file


def closing(call: Callable[[int], None]) -> Callable[[int], None]:
    """Forget which gate a descriptor belongs to: its number is reused for another file."""

    def close(fd: int, /) -> None:
        _of_fd.pop(fd, None)
        call(fd)

    return close


def _forget_all() -> None:
    """Start again in a child: its parent's log dirs are not its own."""
    _of_dir.clear()
    _of_fd.clear()


os.register_at_fork(after_in_child=_forget_all)
