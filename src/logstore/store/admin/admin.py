"""Let a running store be operated from outside: commands by name, served through a Unix socket.

One thread talks to all clients and never waits for a client or a disk. Each request runs in a
thread of its own, so a request that hangs in a disk delays no other. At most `UNDERWAY_MAX`
requests that may touch a disk run at once; those that touch none are always accepted.

Threads: sockets, and the set of connections, belong to the loop. A request's thread only appends to
its connection's outgoing bytes, under the lock, and wakes the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from logstore.errors import LogStoreError
from logstore.store.admin.protocol import decode_line, encode_error, encode_line

if TYPE_CHECKING:
    from logstore.store.admin.server import AdminServer, Answer

UNDERWAY_MAX = 16

Arguments = dict[str, Any]


class Request:
    """What a handler may send to its client while it works."""

    def __init__(
        self, tell: Callable[[bytes], object], is_abandoned: Callable[[], bool] = lambda: False
    ) -> None:
        self._tell = tell
        self._is_abandoned = is_abandoned

    def progress(self, facts: object) -> None:
        """Send progress; a client too slow to receive it misses it."""
        self._tell(encode_line({"progress": facts}))

    @property
    def is_abandoned(self) -> bool:
        """Check whether the client has hung up, so that the result is not needed any more."""
        return self._is_abandoned()


Handler = Callable[[Arguments, Request], object]


class Command(NamedTuple):
    """A command and whether it may touch a disk, and so hang."""

    handler: Handler
    is_quick: bool


class Admin:
    """The commands of a store, for callers in this process and in others.

    Attributes:
        path: the socket that serves them, None if there is none.
    """

    def __init__(self) -> None:
        self.path: str | None = None
        self._commands: dict[str, Command] = {}
        self._elsewhere: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._underway: dict[object, str] = {}
        self._server: AdminServer | None = None

    def __repr__(self) -> str:
        """Show the socket that serves it."""
        return f"<Admin {len(self._commands)} commands at {self.path}>"

    # --- the commands -----------------------------------------------------------------------------

    def register(self, command: str, handler: Handler, *, is_quick: bool = False) -> None:
        """Add a command.

        Args:
            handler: gets the request's other keys and a `Request`, in a thread of its own. What it
                returns (JSON's types; others become text) is the result; an exception becomes the
                error.
            is_quick: it never touches a disk.

        Raises:
            ValueError: the command exists already.
        """
        with self._lock:
            if command in self._commands:
                raise ValueError(f"the command {command!r} is registered already")
            self._commands[command] = Command(handler, is_quick)

    def register_elsewhere(self, prefix: str, load: Callable[[], object]) -> None:
        """Make `load` register the commands with a prefix when one of them is first requested.

        `load` may be called by several threads at once, and more than once.
        """
        self._elsewhere[prefix] = load

    def unregister(self, command: str) -> None:
        """Remove a command; one that does not exist is ignored."""
        with self._lock:
            self._commands.pop(command, None)

    def call(
        self,
        command: str,
        arguments: Arguments | None = None,
        progress: Callable[[Any], object] | None = None,
    ) -> Any:
        """Run a command here and give its result as a client would receive it.

        Raises:
            LogStoreError: as the command raises it; also if there is no such command.
        """

        def tell(line: bytes) -> None:
            if progress is not None:
                progress(decode_line(line)["progress"])

        result = self._find(command).handler(dict(arguments or {}), Request(tell))
        return decode_line(encode_line({"result": result}))["result"]

    def _find(self, command: object) -> Command:
        name = command if isinstance(command, str) else ""
        load = self._elsewhere.get(name.partition(".")[0] + ".")
        if name not in self._commands and load is not None:
            load()
        found = self._commands.get(name)
        if found is None:
            known = ", ".join(sorted(self._commands))
            raise LogStoreError(f"there is no command {command!r} here; there are: {known}")
        return found

    # --- serving ----------------------------------------------------------------------------------

    def choose_place(self) -> str | None:
        """Choose where to serve, to be written into the log dirs' locks; None: do not serve."""
        from logstore.store.admin.place import choose_path
        from logstore.store.upkeep.keeper import warn

        try:
            self.path = choose_path()
        except OSError as error:
            warn("no place for an admin socket: %s", error)
        return self.path

    def listen(self) -> None:
        """Listen at the chosen path; if that fails, the store opens without a socket."""
        from logstore.store.admin.server import AdminServer
        from logstore.store.upkeep.keeper import warn

        if self.path is None:
            return
        try:
            self._server = AdminServer(self.path, _answer_of(ref(self)))
        except OSError as error:
            warn("no admin socket at %s: %s", self.path, error)
            self.path = None

    def start(self) -> None:
        """Serve clients, including those that connected since `listen`."""
        from logstore.store.upkeep.keeper import warn

        if self._server is None:
            return
        try:
            self._server.start()
        except RuntimeError as error:  # no thread can be started
            warn("no admin socket at %s: %s", self.path, error)
            self.stop()

    def stop(self) -> None:
        """Stop serving; requests under way continue, but their results are not sent."""
        if self._server is not None:
            self._server.stop()
            self.path = None

    def leave(self) -> None:
        """Stop serving without waiting."""
        if self._server is not None:
            self._server.leave()

    def drop(self) -> None:
        """Close the descriptors in a forked child; the parent continues to serve."""
        if self._server is not None:
            self._server.drop()

    def answer(
        self, line: bytes, tell: Callable[[bytes], object], is_abandoned: Callable[[], bool]
    ) -> bytes:
        """Do what a request asks and give the last line of the answer; raises nothing."""
        try:
            arguments = decode_line(line)
            name = arguments.pop("command", None)
            command = self._find(name)
            with nullcontext() if command.is_quick else self._place_for(str(name)):
                result = command.handler(arguments, Request(tell, is_abandoned))
            return encode_line({"result": result})
        except Exception as error:  # noqa: BLE001 - it goes to the client
            return encode_line({"error": encode_error(error)})

    @contextmanager
    def _place_for(self, name: str) -> Iterator[None]:
        """Count a request that may hang; beyond the limit it is refused."""
        place = object()
        with self._lock:
            names = ", ".join(sorted(self._underway.values()))
            if len(self._underway) >= UNDERWAY_MAX:
                raise LogStoreError(f"{UNDERWAY_MAX} requests are under way; try again ({names})")
            self._underway[place] = name
        try:
            yield
        finally:
            with self._lock:
                del self._underway[place]


def _answer_of(entry: ref[Admin]) -> Answer:
    """Make the function that a server calls; the server's thread does not keep the store alive."""

    def answer(
        line: bytes, tell: Callable[[bytes], object], is_abandoned: Callable[[], bool]
    ) -> bytes:
        admin = entry()
        if admin is None:
            return encode_line({"error": encode_error(LogStoreError("the store is gone"))})
        return admin.answer(line, tell, is_abandoned)

    return answer
