"""Change which log dirs belong to a running store: admit, replace or forget a log dir.

(At a start, `start/roster` decides which log dirs belong to the store.) `admit` reads a path and
decides its role. `admit` writes nothing. `join` and `forget` write the roster to each log dir. At
the next start, the roster with the highest epoch is used. If a crash interrupts the writes of the
roster, the next start sees either the old members or the new members. A joining dir gets its
identity before the other log dirs get the roster that contains the joining dir. If a crash comes
before the other log dirs get this roster, the joining dir is not a member yet, and has no data.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from logstore.disk.documents.meta_properties import MetaProperties, new_id
from logstore.disk.log_dir import LogDir
from logstore.errors import LogDirIdentityError, LogStoreError
from logstore.store.dirs.parallel import for_each
from logstore.store.dirs.takeover import does_not_work, each
from logstore.store.replicas import Replicas
from logstore.store.start.identity import check_apart, resolve, write_identity
from logstore.store.start.nesting import refuse
from logstore.store.start.open_dirs import look
from logstore.store.start.refusals import FORMAT_REMEDY, TAKE_BACK
from logstore.store.start.roster import DirFacts, Found, Roll, not_mounted

REPLACE_REMEDY = (
    "mount the disk, or, if this empty disk replaces the old disk, pass format_new=True "
    "(logstore reopen {path} --format-new)"
)
ABSENT_REMEDY = (
    "there is no such directory, most likely because its disk is not mounted: mount the disk, or, "
    "if a new disk replaces it, mount the new disk, make the directory, and reopen the log dir "
    "with format_new=True (logstore reopen {path} --format-new)"
)


class Admission(NamedTuple):
    """The role that the directory at a path gets in the store.

    Attributes:
        is_new: whether the directory gets a new identity.
        is_changed: whether the identity of the directory must be written.
        replaces: the directory id of the log dir that the directory replaces, if any.
    """

    path: str
    directory_id: str
    is_new: bool
    is_changed: bool
    replaces: str | None = None


class Membership:
    """The roster of a running store. Threads: a lock serialises changes."""

    def __init__(self, replicas: Replicas, roll: Roll, patience_seconds: float) -> None:
        meta = roll.members[0].meta
        self.cluster_id, self.broker_id = meta.cluster_id, meta.broker_id
        self.epoch, self.roster = meta.roster_epoch, meta.roster
        self._replicas = replicas
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()  # a thread that holds this lock limits its waits for disks

    def admit(
        self, path: str, *, format_new: bool = False, replaces: str | None = None
    ) -> Admission:
        """Decide the role of the directory at a path, in a limited time and without writing.

        Args:
            format_new: take the directory into the store even if it has no identity, or if it was
                removed from the store.
            replaces: the directory id of a disk that is lost for good, and that the new directory
                replaces.

        Raises:
            LogDirIdentityError: the directory is foreign, is in the store already, is not
                formatted, or is inside or around a log dir. This error is also raised in two other
                cases. In the first case, the directory is new, but fstab lists an unmounted disk
                for it. In the second case, the directory of a log dir of the store does not exist.
            LogDirOfflineError: the directory cannot be read, or the disk hangs.
        """
        configured = resolve([path], self._patience_seconds)
        resolved = configured.paths[0]
        for log_dir in self._replicas.log_dirs:
            check_apart(resolved, log_dir.path)
        (facts,) = look(configured, self._patience_seconds)
        if facts.found is Found.BAD:
            raise does_not_work(resolved, facts.reason)
        if facts.meta is not None:
            return self._admit_formatted(facts, facts.meta, format_new, replaces)
        directory_id = self._known_id(facts)
        if directory_id is not None:
            self._check_stands_once(resolved, directory_id)
            return Admission(resolved, directory_id, is_new=False, is_changed=True)
        if facts.found is Found.ABSENT and self._replicas.find_dir(path) is not None:
            # A new directory would be on the wrong disk: the disk with the mount point.
            raise LogDirIdentityError(path=resolved, reason=ABSENT_REMEDY.format(path=resolved))
        if facts.found is Found.DAMAGED or facts.has_replicas:
            if not format_new:
                reason = (
                    f"its meta.properties is lost ({facts.reason or 'it is gone'}), and nothing "
                    f"shows which log dir of the store it is: {FORMAT_REMEDY}"
                )
                raise LogDirIdentityError(path=resolved, reason=reason)
        elif not format_new:
            why = not_mounted(facts) or "it is not formatted"
            remedy = REPLACE_REMEDY.format(path=resolved)
            raise LogDirIdentityError(path=resolved, reason=f"{why}: {remedy}")
        elif facts.unmounted and replaces is None:
            raise LogDirIdentityError(path=resolved, reason=f"{not_mounted(facts)}: mount it")
        refuse(facts)
        return Admission(resolved, new_id(), is_new=True, is_changed=True, replaces=replaces)

    def _admit_formatted(
        self, facts: DirFacts, meta: MetaProperties, format_new: bool, replaces: str | None
    ) -> Admission:
        if meta.cluster_id != self.cluster_id:
            reason = f"it belongs to another store ({meta.cluster_id}, not {self.cluster_id})"
            raise LogDirIdentityError(path=facts.path, reason=reason)
        self._check_stands_once(facts.path, meta.directory_id)
        if meta.directory_id in self.roster:
            whole = self._meta_of(meta.directory_id)
            return Admission(facts.path, meta.directory_id, False, is_changed=meta != whole)
        if not format_new:
            reason = (
                f"its directory id {meta.directory_id} is not in the roster of the store: it was "
                f"removed or replaced; {TAKE_BACK}"
            )
            raise LogDirIdentityError(path=facts.path, reason=reason)
        return Admission(facts.path, meta.directory_id, False, is_changed=True, replaces=replaces)

    def _check_stands_once(self, path: str, directory_id: str) -> None:
        """Raise if a log dir at another path has the same id: all replicas would exist twice."""
        for log_dir in self._replicas.log_dirs:
            if log_dir.directory_id != directory_id or log_dir.path == path:
                continue
            reason = (
                f"it is the same log dir as {log_dir.path}, under another name, or it is a copy "
                "of that log dir"
            )
            if log_dir.is_offline:
                reason += "; that log dir is offline: mount the disk there, and reopen it"
            raise LogDirIdentityError(path=path, reason=reason)

    def _known_id(self, facts: DirFacts) -> str | None:
        """Find the id of a member whose identity is lost: the hinted id, or the only absent id.

        The hint is from the lock file or from the readable part of the identity. The result is None
        if the dir is not a member, or if it could be one of several members.
        """
        absent, hinted = self._absent_ids(), facts.hint.directory_id
        was_ours = facts.found is Found.DAMAGED or facts.has_replicas or hinted is not None
        if not was_ours or facts.hint.cluster_id not in (None, self.cluster_id):
            return None
        if hinted is not None:
            return hinted if hinted in absent else None
        return absent[0] if len(absent) == 1 else None

    def _absent_ids(self) -> list[str]:
        """List the ids of the members that are not among the working log dirs."""
        serving = {d.directory_id for d in self._replicas.log_dirs if not d.is_offline}
        return [id_ for id_ in self.roster if id_ not in serving]

    def _meta_of(self, directory_id: str) -> MetaProperties:
        return MetaProperties(
            self.cluster_id, self.broker_id, directory_id, self.epoch, self.roster, False
        )

    def join(self, log_dir: LogDir, admission: Admission) -> None:
        """Make a locked log dir a member, durably, and write the roster to the other log dirs.

        Each epoch is used only once. After a failed write, the roster of this write may still reach
        the disk later. A roster that was written in between has a higher epoch and outranks it.

        Raises:
            LogDirOfflineError: the identity cannot be written; the roster is unchanged.
        """
        with self._lock:
            log_dir.belong(self.cluster_id, admission.directory_id)
            before = self.roster
            roster = tuple(id_ for id_ in before if id_ != admission.replaces)
            if admission.directory_id not in roster:
                roster = (*roster, admission.directory_id)
            if roster != before:
                self.epoch, self.roster = self.epoch + 1, roster
            elif not admission.is_changed:
                return
            meta = self._meta_of(admission.directory_id)
            try:
                each(
                    [log_dir],
                    lambda log_dir: write_identity(log_dir, meta),
                    self._patience_seconds,
                    when="while it is taken into use",
                )
                log_dir.check()
            except LogStoreError:
                self.roster = before
                raise
            self._tell(besides=log_dir)

    def forget(self, directory_id: str) -> None:
        """Durably remove a member from the store, because its disk is lost or empty."""
        with self._lock:
            if directory_id not in self.roster:
                return
            self.epoch += 1
            self.roster = tuple(id_ for id_ in self.roster if id_ != directory_id)
            self._tell()

    def _tell(self, besides: LogDir | None = None) -> None:
        """Write the roster to all log dirs except `besides`; a log dir that fails gets it later."""
        others = [
            log_dir
            for log_dir in self._replicas.log_dirs
            if log_dir is not besides
            and log_dir.directory_id in self.roster
            and not log_dir.is_suspect
        ]
        for_each(
            others,
            lambda log_dir: write_identity(log_dir, self._meta_of(log_dir.directory_id)),
            name="logstore-roster",
            is_given_up=lambda log_dir: log_dir.is_suspect,
        )
        self.note_missing()

    def note_missing(self) -> None:
        """Remember the members that have no log dir in this process."""
        there = {log_dir.directory_id for log_dir in self._replicas.log_dirs}
        self._replicas.missing_ids = tuple(id_ for id_ in self.roster if id_ not in there)
