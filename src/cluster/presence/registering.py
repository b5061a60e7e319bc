"""Register a broker, and determine the `whole_since` of each of its log dirs (P3, P4).

If a log dir is full or slow, the write of its entry may fail. After such a failure, the other steps
still run, and the entry is written later. Until the new entry is written, the recorded failures of
this log dir stay. If another log dir fails before the entry is written, the failure cannot be noted
in the entry. If there is no third log dir, only tmpfs has the record of the other log dir's
failure.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from broker.coordination.errors import (
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    OutcomeUnknownError,
)
from broker.coordination.verbs import Session, Znode
from broker.listener_config import Endpoint
from cluster import znodes
from cluster.host_dirs import DirEntry
from cluster.presence import boots, dir_facts, known_states
from cluster.presence.dir_facts import FailureRecords
from cluster.presence.known_states import KnownStates
from cluster.pure import attest
from cluster.pure.attest import Host
from logstore import LogDirOfflineError, LogStore, LogStoreError

LOG = logging.getLogger("cluster")
REMEMBER_SECONDS = 60.0  # the time between two writes of the states of the log dirs


class Registering:
    """The registration of a broker, and the entries of its log dirs.

    Threads: one thread at a time. Before each call, the caller must take a lock.
    """

    def __init__(
        self,
        host: Host,
        store: LogStore,
        session: Session,
        records: FailureRecords,
        directory_ids: Mapping[str, str],
        end_roles: Callable[[str], object],
    ) -> None:
        """Store the arguments; `register` registers the broker.

        Args:
            directory_ids: for each log dir, the id of its directory.
            end_roles: ends the roles of all replicas in a log dir.
        """
        self._host, self._store, self._session = host, store, session
        self._records, self._directory_ids = records, dict(directory_ids)
        self._end_roles = end_roles
        self._endpoints: Sequence[Endpoint] = ()
        self._rack = ""
        self._protocols: Mapping[str, str] = {}
        self._late: set[str] = set()  # the log dirs whose entry could not be written
        self._states = KnownStates(session, host.broker_id)
        self._remember_at = 0.0

    def register(
        self, endpoints: Sequence[Endpoint], rack: str = "", protocols: Mapping[str, str] = {}
    ) -> None:
        """Register in this session, then determine the `whole_since` of each log dir.

        Args:
            protocols: the security protocol of each listener.

        Raises:
            NodeExistsError: another session has registered this id.
        """
        self._endpoints, self._rack, self._protocols = endpoints, rack, protocols
        self._begin()
        old = self._states.old_copies(self._store)
        for log_dir in sorted(old):
            LOG.error("%s is an old copy: the cluster knows a later state of it", log_dir)
        entries = {
            log_dir: attest.present_entry(self._read_entry(log_dir), is_old_copy=log_dir in old)
            for log_dir in self._store.log_dirs
        }
        for log_dir in entries:
            self._attest(log_dir, entries)
        try:
            self._remember()
        except CoordinationError as error:  # `repeat` stores the states later
            LOG.info("the states of the log dirs are not stored yet: %s", error)

    def register_again(self) -> None:
        """Register in a new session of this process. The log dirs have lost nothing.

        Raises:
            NodeExistsError: the registration of the old session still exists; try again.
        """
        self._begin()

    def _begin(self) -> None:
        path = znodes.broker_path(self._host.broker_id)
        made = self._create(path)
        if made.czxid > self._host.broker_epoch:
            self._tell(attest.SessionBegan(made.czxid))

    def _create(self, path: str) -> Znode:
        """Create the registration, unless an earlier try of this session has created it."""
        try:
            dirs = [one for one, state in self._host.dirs.items() if not state.removed_as]
            data = self._data(dict.fromkeys(self._directory_ids[one] for one in dirs))
            return self._session.create(path, data, ephemeral=True)
        except (NodeExistsError, OutcomeUnknownError):
            found = self._session.get(path)
            if found.ephemeral_owner != self._session.key.session_id:
                raise
            return found

    @property
    def is_late(self) -> bool:
        """Whether `repeat` must write the entry of a log dir, or the states of the log dirs."""
        return bool(self._late) or time.monotonic() >= self._remember_at

    def repeat(self) -> None:
        """Repeat the writes that have not succeeded yet, and store the states of the log dirs."""
        for log_dir in sorted(self._late):
            self._late.discard(log_dir)
            self._tell(attest.EntryDue(log_dir))
        for log_dir, one in self._host.dirs.items():
            if one.is_awaited:
                self._write_again(log_dir)
        if time.monotonic() >= self._remember_at:
            self._remember()

    def _remember(self) -> None:
        """Store the states of the log dirs that work. Their entries must be durable first (P4)."""
        found, states = known_states.generations(self._store), {}
        for log_dir, one in self._host.dirs.items():
            is_entered = one.is_good and not one.is_awaited and log_dir not in self._late
            generation = found.get(log_dir)
            if not is_entered or generation is None or generation.is_frozen:
                continue
            if generation.current is not None:
                states[generation.directory_id] = generation.current
        ids = (one.directory_id for one in found.values())
        members = {*ids, *self._store.host.replicas.missing_ids}
        self._states.remember(states, members)
        self._remember_at = time.monotonic() + REMEMBER_SECONDS

    def failed(self, log_dir: str) -> None:
        """Remember that a log dir failed, and end the roles of its replicas."""
        is_new = log_dir not in self._host.dirs and self._join(log_dir)
        if is_new or self._host.dirs[log_dir].is_good or self._host.dirs[log_dir].is_awaited:
            self._tell(attest.DirFailed(log_dir))

    def returned(self, log_dir: str) -> None:
        """Register again, because a log dir works again.

        The replicas in this log dir must have no roles yet. If an empty disk has replaced the disk,
        the log dir has another directory id. The record of its failures on tmpfs must have this id,
        because the next start looks for it.
        """
        if log_dir in self._host.dirs and not self._host.dirs[log_dir].is_good:
            if present := dir_facts.directory_id_of(self._store, log_dir):
                self._directory_ids[log_dir] = present
            self._tell(attest.DirReturned(log_dir))

    def added(self, log_dir: str) -> None:
        """Register again, because the store has added a log dir."""
        if self._join(log_dir):
            self._tell(attest.DirReturned(log_dir))

    def removed(self, log_dir: str) -> None:
        """Unless the store has added a removed log dir again, register without this log dir."""
        if log_dir in self._host.dirs and log_dir not in self._store.log_dirs:
            self._tell(attest.DirRemoved(log_dir, self._directory_ids[log_dir]))

    def _join(self, log_dir: str) -> bool:
        """Add a log dir, which counts as failed at first; return False if the store lost it."""
        directory_id = dir_facts.directory_ids(self._store).get(log_dir)
        if directory_id is None:
            return False
        self._directory_ids[log_dir] = directory_id
        boot, mount = boots.boot_id(), boots.mount_id(log_dir)
        self._tell(attest.DirJoined(log_dir, directory_id, boot, mount))
        return True

    def withdraw(self) -> None:
        """Mark the log dirs as stopped cleanly, and end the registration."""
        for log_dir, one in self._host.dirs.items():
            if one.is_good:
                try:
                    self._write_entry(log_dir, one.entry(is_stopped_cleanly=True))
                except (LogStoreError, ValueError) as error:
                    LOG.warning("%s has no mark of a clean stop: %s", log_dir, error)
                    if isinstance(error, LogDirOfflineError):
                        self.failed(log_dir)
        self._remember()
        try:
            self._session.delete(znodes.broker_path(self._host.broker_id))
        except NoNodeError:
            return

    def _attest(self, log_dir: str, entries: Mapping[str, DirEntry | None]) -> None:
        try:
            # this raises an error if the log dir does not work
            dir_facts.read_entry(self._store, log_dir)
        except LogStoreError:
            self._tell(attest.DirMissing(log_dir))
        else:
            record = self._records.read(self._directory_ids[log_dir])
            self._tell(dir_facts.find(log_dir, entries, record))

    def _read_entry(self, log_dir: str) -> DirEntry | None:
        """Read an entry, and name its failed log dirs by their present paths."""
        try:
            entry = dir_facts.read_entry(self._store, log_dir)
        except (LogStoreError, ValueError) as error:
            LOG.warning("the entry of %s cannot be read: %s", log_dir, error)
            return None
        if entry is None:
            return None
        paths = {directory_id: path for path, directory_id in self._directory_ids.items()}
        return entry._replace(failed=frozenset(paths.get(one, one) for one in entry.failed))

    def _write_entry(self, log_dir: str, entry: DirEntry) -> None:
        """Write an entry. Name failed log dirs by ids, which stay the same at another mount."""
        ids = frozenset(self._directory_ids.get(one, one) for one in entry.failed)
        dir_facts.write_entry(self._store, log_dir, entry._replace(failed=ids))

    def _tell(self, event: attest.Event) -> None:
        """Carry out the effects of an event, even if the entry of a log dir cannot be written.

        If the write shows that the log dir is offline, the log dir counts as failed. If the write
        fails for another reason, the entry is written later.
        """
        about: str = getattr(event, "dir_id", "")
        noting = self._host.noting(about)
        refused: dict[str, Exception] = {}
        for effect in self._host.handle(event, time.monotonic()):
            if about in refused and not isinstance(effect, attest.EndRoles):
                continue  # the failure of this log dir must be neither cleared nor forgotten
            try:
                self._carry_out(effect)
            except (LogStoreError, ValueError) as error:
                if not isinstance(effect, attest.WriteEntry):
                    raise
                LOG.warning("the entry of %s cannot be written: %s", effect.dir_id, error)
                refused[effect.dir_id] = error
        if about in refused:
            self._host.keep_notes(about, noting)
        for log_dir, reason in refused.items():
            if isinstance(reason, LogDirOfflineError):
                self.failed(log_dir)
            else:
                self._late.add(log_dir)

    def _carry_out(self, effect: attest.Effect) -> None:
        match effect:
            case attest.RecordFailure(log_dir):
                self._records.record(self._directory_ids[log_dir])
            case attest.ClearFailure(log_dir):
                self._records.clear(self._directory_ids[log_dir])
            case attest.EndRoles(log_dir):
                self._end_roles(log_dir)
            case attest.WriteEntry(log_dir, entry):
                self._write_entry(log_dir, entry)
            case attest.WriteRegistration(log_dir):
                self._write_again(log_dir)

    def _write_again(self, log_dir: str) -> None:
        path = znodes.broker_path(self._host.broker_id)
        dirs = self._host.dirs
        epochs = {
            self._directory_ids[one]: None if one == log_dir else state.epoch or None
            for one, state in dirs.items()
            if not state.removed_as
        }
        written = self._session.set(path, self._data(epochs))
        self._tell(attest.DirEntered(log_dir, written.mzxid))

    def _data(self, dir_epochs: Mapping[str, int | None]) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        return znodes.encode_registration(
            self._endpoints, self._rack, dir_epochs, now_ms, self._protocols
        )
