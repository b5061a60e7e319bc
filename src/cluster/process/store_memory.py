"""Store facts about the coordination store and the session durably, in each log dir.

    cluster.store      [cluster id, czxid of /cluster/id, mzxid of the witness, highest zxid]
    cluster.session    [boot id, session id, password in hex]

The broker uses `cluster.store` to recognise a coordination store that was wiped, or restored from a
copy. The broker refuses a wiped or restored store. After a broker was killed, the new process uses
`cluster.session` to end the old session at once. Without `cluster.session`, the process would have
to wait until ZooKeeper ends the old session. The boot id is stored, because the disks may be copied
to another machine while the process with the old session still runs on the first machine.
"""

from __future__ import annotations

import logging
import threading

from broker.coordination import continuity
from broker.coordination.continuity import Remembered
from broker.coordination.errors import CoordinationError
from broker.coordination.verbs import Session, SessionKey
from cluster.presence import boots
from logstore import LogStore, LogStoreError

LOG = logging.getLogger("cluster")
STORE, SESSION = "cluster.store", "cluster.session"
REMEMBER_SECONDS = 60.0


class StoreMemory:
    """The facts about the coordination store in the log dirs of one broker.

    Threads: any thread may call any method. One thread calls `remember` from time to time.
    """

    def __init__(self, store: LogStore, broker: int, seconds: float = REMEMBER_SECONDS) -> None:
        """Store the arguments; read nothing yet.

        Args:
            seconds: the time between two calls of `remember`.
        """
        self._store, self._name, self._seconds = store, str(broker), seconds
        self._writing = threading.Lock()  # an older state must never replace a newer state
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def check(self, session: Session) -> None:
        """Check that a coordination store is the store that each log dir remembers.

        Raises:
            ContinuityError: the store was wiped or restored, or is another store.
        """
        for fact in self._facts(STORE):
            try:
                known = Remembered.of(fact)
            except ValueError as error:
                LOG.warning(
                    "the state of the coordination store in a log dir cannot be read: %s", error
                )
                continue
            continuity.check(session, self._name, known)

    def remember(self, session: Session) -> None:
        """Remember the present state of the store. Raises CoordinationError."""
        with self._writing:
            self._write(STORE, [*continuity.remember(session, self._name)])

    def keep_session(self, key: SessionKey) -> None:
        """Remember the session of this process."""
        self._write(SESSION, [boots.boot_id(), key.session_id, key.password.hex()])

    def kept_sessions(self) -> list[SessionKey]:
        """Return the sessions of earlier processes that ran since this boot of the machine."""
        found = []
        for fact in self._facts(SESSION):
            match fact:
                case [str(boot), int(session_id), str(password)] if boot == boots.boot_id() != "":
                    try:
                        found.append(SessionKey(session_id, bytes.fromhex(password)))
                    except ValueError:
                        continue
        return found

    def start(self, session: Session) -> None:
        """Start a thread that calls `remember` from time to time."""
        self._thread = threading.Thread(
            target=self._run, args=(session,), name="store-memory", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, session: Session) -> None:
        while not self._ended.wait(self._seconds):
            try:
                self.remember(session)
            except CoordinationError as error:
                LOG.info(
                    "the state of the coordination store was not stored in the log dirs: %s", error
                )
            except Exception:
                LOG.exception(
                    "the state of the coordination store will be stored in the log dirs later"
                )

    def _facts(self, key: str) -> list[object]:
        """Read a fact in all log dirs that work; return its different values."""
        found: list[object] = []
        for log_dir in self._store.log_dirs:
            try:
                fact = self._store.facts(log_dir).get(key)
            except (LogStoreError, ValueError) as error:
                LOG.warning("%s of %s cannot be read: %s", key, log_dir, error)
                continue
            if fact is not None and fact not in found:
                found.append(fact)
        return found

    def _write(self, key: str, fact: list[str | int]) -> None:
        for log_dir in self._store.log_dirs:
            try:
                self._store.facts(log_dir)[key] = fact
            except (LogStoreError, ValueError) as error:
                LOG.warning("%s of %s cannot be written: %s", key, log_dir, error)
