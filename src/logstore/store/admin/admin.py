"""Let other processes operate a running store, with commands that they send to a Unix socket.

One thread talks to all clients and never waits for a client or a disk. Each request runs in a
thread of its own, so a request that hangs in a disk call delays no other request. At most
`UNDERWAY_MAX` requests that may touch a disk run at once. Requests that touch no disk are always
accepted.

Threads: only the server's loop uses the sockets and the set of connections. The thread of a request
appends to the outgoing bytes of its connection, under the lock, and wakes the loop. It does nothing
else with the connection.
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
    """Lets a running handler send progress to its client, and ask whether the client has left."""

    def __init__(
        self, tell: Callable[[bytes], object], is_abandoned: Callable[[], bool] = lambda: False
    ) -> None:
        self._tell = tell
        self._is_abandoned = is_abandoned

    def progress(self, facts: object) -> None:
        """Send progress to the client; if the client has too much unread progress, send nothing."""
        self._tell(encode_line({"progress": facts}))

    @property
    def is_abandoned(self) -> bool:
        """Check whether the client has closed its connection, and so needs no result."""
        return self._is_abandoned()


Handler = Callable[[Arguments, Request], object]


class Command(NamedTuple):
    """A command. A quick command never touches a disk, so it cannot hang."""

    handler: Handler
    is_quick: bool


class Admin:
    """The commands of a store, for callers in this process and in other processes.

    Attributes:
        path: the socket that serves the commands; None if there is no socket.
    """

    def __init__(self) -> None:
        self.path: str | None = None
        self._commands: dict[str, Command] = {}
        self._elsewhere: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._underway: dict[object, str] = {}
        self._server: AdminServer | None = None

    def __repr__(self) -> str:
        """Show how many commands there are, and the socket that serves them."""
        return f"<Admin {len(self._commands)} commands at {self.path}>"

    # --- the commands -----------------------------------------------------------------------------

    def register(self, command: str, handler: Handler, *, is_quick: bool = False) -> None:
        """Add a command.

        Args:
            handler: a function that is called in a thread of its own, with the arguments of a
                request and a `Request`. The return value of the function is the result; a value
                that JSON cannot represent becomes text. If the handler raises an error, the client
                gets the error.
            is_quick: whether the handler never touches a disk.

        Raises:
            ValueError: the command is registered already.
        """
        with self._lock:
            if command in self._commands:
                raise ValueError(f"the command {command!r} is registered already")
            self._commands[command] = Command(handler, is_quick)

    def register_elsewhere(self, prefix: str, load: Callable[[], object]) -> None:
        """Call `load`, which registers commands, when a client first requests one with the prefix.

        `load` may be called several times, even by several threads at once.
        """
        self._elsewhere[prefix] = load

    def unregister(self, command: str) -> None:
        """Remove a command; do nothing if there is no such command."""
        with self._lock:
            self._commands.pop(command, None)

    def call(
        self,
        command: str,
        arguments: Arguments | None = None,
        progress: Callable[[Any], object] | None = None,
    ) -> Any:
        """Run a command in this process and return the result that a client would receive.

        Raises:
            LogStoreError: the command raised this error, or there is no such command.
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
            raise LogStoreError(f"there is no command {command!r}; the commands are: {known}")
        return found

    # --- serving ----------------------------------------------------------------------------------

    def choose_place(self) -> str | None:
        """Choose the path of the socket for the lock files; return None if there is none."""
        from logstore.store.admin.place import choose_path
        from logstore.store.upkeep.keeper import warn

        try:
            self.path = choose_path()
        except OSError as error:
            warn("no admin socket, because there is no place for it: %s", error)
        return self.path

    def listen(self) -> None:
        """Listen at the chosen path; if listening fails, the store opens without a socket."""
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
        """Start to serve clients, including clients that connected after the call of `listen`."""
        from logstore.store.upkeep.keeper import warn

        if self._server is None:
            return
        try:
            self._server.start()
        except RuntimeError as error:  # no thread can be started
            warn("no admin socket at %s: %s", self.path, error)
            self.stop()

    def stop(self) -> None:
        """Accept no more requests; running requests continue, but their results are not sent."""
        if self._server is not None:
            self._server.stop()
            self.path = None

    def leave(self) -> None:
        """Accept no more requests, and do not wait for running requests."""
        if self._server is not None:
            self._server.leave()

    def drop(self) -> None:
        """Close the descriptors in a forked child; the parent still answers requests."""
        if self._server is not None:
            self._server.drop()

    def answer(
        self, line: bytes, tell: Callable[[bytes], object], is_abandoned: Callable[[], bool]
    ) -> bytes:
        """Run the command of a request, and return the last line of the answer; raise no error."""
        try:
            arguments = decode_line(line)
            name = arguments.pop("command", None)
            command = self._find(name)
            with nullcontext() if command.is_quick else self._place_for(str(name)):
                result = command.handler(arguments, Request(tell, is_abandoned))
            return encode_line({"result": result})
        except Exception as error:  # noqa: BLE001 - the client gets the error
            return encode_line({"error": encode_error(error)})

    @contextmanager
    def _place_for(self, name: str) -> Iterator[None]:
        """Count a running request that may hang; refuse the request if too many requests run."""
        place = object()
        with self._lock:
            names = ", ".join(sorted(self._underway.values()))
            if len(self._underway) >= UNDERWAY_MAX:
                raise LogStoreError(
                    f"{UNDERWAY_MAX} requests are already running ({names}); try again"
                )
            self._underway[place] = name
        try:
            yield
        finally:
            with self._lock:
                del self._underway[place]


def _answer_of(entry: ref[Admin]) -> Answer:
    """Make the function that answers a server's requests; it does not keep the store alive."""

    def answer(
        line: bytes, tell: Callable[[bytes], object], is_abandoned: Callable[[], bool]
    ) -> bytes:
        admin = entry()
        if admin is None:
            return encode_line(
                {"error": encode_error(LogStoreError("the store does not exist any more"))}
            )
        return admin.answer(line, tell, is_abandoned)

    return answer
