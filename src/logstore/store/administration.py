"""Change the log dirs of a running store: add, remove, take offline, reopen, cordon, prefer.

A thread that changes a log dir reserves it. Changes of different dirs do not wait for each other,
and a change waits for no disk that hangs except its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from logstore.arguments import flag, known_as, path_of
from logstore.disk.failures import reason_of
from logstore.disk.log_dir import LogDir
from logstore.disk.uninterrupted import uninterruptible
from logstore.errors import LogDirError, LogDirOfflineError, LogStoreError, PartitionExistsError
from logstore.names import TopicPartition, validate_partition, validate_topic
from logstore.store.dir_failures import FailureCallback, StoreFailures

if TYPE_CHECKING:
    from logstore.store.recovery_report import RecoveryReport

StrPath = str | os.PathLike[str]

DROP_SECONDS_MAX = 5.0


class Claim:
    """One change of a log dir that is under way."""


@known_as("LogStore")
class StoreAdministration(StoreFailures):
    """The part of a store that changes its log dirs."""

    def __init__(self, on_log_dir_failure: FailureCallback | None) -> None:
        """Use `LogStore.open`."""
        super().__init__(on_log_dir_failure)
        self._changing = threading.Lock()
        # Weak references: a thread that was interrupted on its way in or out reserves nothing any
        # more.
        self._changed: WeakValueDictionary[str, Claim] = WeakValueDictionary()

    @uninterruptible
    def add_dir(self, path: StrPath, *, format_new: bool = True) -> RecoveryReport:
        """Take a further log dir into the store, or one of its own that was missing.

        Args:
            format_new: give an identity to a directory without one; with False it is refused.

        Raises:
            LogDirIdentityError: it is foreign, the same as another one, or new although a disk that
                /etc/fstab names is not mounted.
            LogDirLockedError: another process has it open.
            LogDirOfflineError: its disk failed on the way; the store is unchanged.
            LogDirError: retriable: this process is short of descriptors or memory.
        """
        from logstore.store.dirs.dir_return import bring_in

        flag(format_new, "format_new")
        self._check_owner()
        with self._change_of(self._resolved(path)) as resolved:
            if self._replicas.find_dir(resolved) is not None:
                reason = "it is a log dir of this store already; if it is offline, reopen it"
                raise LogDirError(path=resolved, reason=reason)
            members = self._membership.roster
            try:
                return bring_in(self, self._membership.admit(resolved, format_new=format_new))
            except (LogDirError, MemoryError) as error:
                half_added = self._replicas.find_dir(resolved)
                is_shortage = isinstance(error, MemoryError) or (
                    error.retriable and type(error) is LogDirError  # no disk is to blame
                )
                # the state is as if it had not been added
                if is_shortage and half_added is not None:
                    self._wait_for_seers(DROP_SECONDS_MAX)
                    self._let_go_of(half_added)  # no other thread did, if none could be started
                    self._drop_dir(half_added)
                if is_shortage:
                    for id_ in self._membership.roster:
                        if id_ not in members:
                            self._membership.forget(id_)
                raise

    @uninterruptible
    def reopen_dir(self, path: StrPath, *, format_new: bool = False) -> RecoveryReport:
        """Bring an offline log dir back, with its replicas, while the others serve.

        Args:
            format_new: the disk was replaced by an empty one, which takes its place. What the old
                disk held is lost, unless it is elsewhere; `lost` of the report names it.

        Raises:
            LogDirIdentityError: the directory there is not this log dir.
            LogDirOfflineError: it does not work yet.
            DuplicateLogError: a copy that comes back outranks an open one; everything else serves.
        """
        return self._reopen_dir(path, format_new=format_new, may_lose=True)

    def _reopen_dir(self, path: StrPath, *, format_new: bool, may_lose: bool) -> RecoveryReport:
        """Do what `reopen_dir` does; refuse a loss of replicas without permission, by name."""
        from logstore.store.dirs.dir_return import bring_in, replace
        from logstore.store.dirs.lost_dirs import id_to_replace

        flag(format_new, "format_new")
        flag(may_lose, "may_lose")
        self._check_owner()
        log_dir = self._dir_named(path)
        with self._change_of(log_dir.path):
            if not log_dir.is_offline:
                raise LogDirError(path=log_dir.path, reason="it is not offline")
            self._wait_for_seers(DROP_SECONDS_MAX)
            replaces = log_dir.directory_id or None
            admission = self._membership.admit(
                log_dir.path, format_new=format_new, replaces=replaces if format_new else None
            )
            is_member = admission.directory_id in self._membership.roster
            if format_new and not replaces and not is_member:  # a start without the old disk
                missing = id_to_replace(self._replicas, log_dir.path)
                admission = admission._replace(replaces=missing)
            if admission.replaces is None:
                return bring_in(self, admission)
            return replace(self, log_dir, admission, may_lose=may_lose)

    @uninterruptible
    def take_offline(self, path: StrPath) -> None:
        """Flush a log dir and release it, so that its disk can be unmounted; see `reopen_dir`."""
        from logstore.store.dirs.shutdown import flush_dir
        from logstore.store.upkeep.keeper import warn

        self._check_owner()
        log_dir = self._dir_named(path)
        with self._change_of(log_dir.path):
            if not log_dir.is_refusing:
                try:
                    flush_dir(self._replicas, log_dir)
                    self._checkpoint(log_dir)
                except LogStoreError as error:
                    warn("flushing %s before it goes offline failed: %s", log_dir.path, error)
            log_dir.take_offline("its user took it offline")
            self._wait_for_seers(DROP_SECONDS_MAX)

    @uninterruptible
    def remove_dir(self, path: StrPath, *, lost: bool = False) -> tuple[TopicPartition, ...]:
        """Take a log dir out of the store, durably; returns the replicas that are lost with it.

        Args:
            path: of the log dir; for a missing log dir, its last path or its directory id.
            lost: its disk is gone for good, with everything on it (KIP-112, scenario 4). Otherwise
                it must hold nothing that is still needed.

        Raises:
            LogDirError: it holds replicas, or deletions that other dirs have not learned yet; or it
                serves although `lost` is given; or it is the only log dir; or it is missing, and
                its path does not identify it.
        """
        return self._remove_dir(path, lost=lost, may_lose=True)

    def _remove_dir(
        self, path: StrPath, *, lost: bool, may_lose: bool
    ) -> tuple[TopicPartition, ...]:
        """Do what `remove_dir` does; refuse a loss of replicas without permission, by name."""
        from logstore.store.dirs.lost_dirs import give_up, give_up_missing, missing_id_of

        flag(lost, "lost")
        flag(may_lose, "may_lose")
        self._check_owner()
        name = path_of(path, "path")
        is_here = name not in self._replicas.missing_ids and self._find_dir(name) is not None
        missing = None if is_here else missing_id_of(self._replicas, name)
        if missing is not None:
            if not lost:
                raise LogDirError(path=name, reason="it is missing: pass lost=True to give it up")
            return give_up_missing(self, missing, may_lose=may_lose)
        log_dir = self._dir_named(path)
        with self._change_of(log_dir.path):
            if all(other.is_offline for other in self._replicas.log_dirs if other is not log_dir):
                raise LogDirError(path=log_dir.path, reason="no other log dir would be left")
            if lost:
                return give_up(self, log_dir, may_lose=may_lose)
            return self._remove_empty(log_dir)

    @uninterruptible
    def cordon(self, path: StrPath) -> None:
        """Place no new replicas on a log dir until `uncordon`, also after restarts."""
        self._cordon(path, True)

    @uninterruptible
    def uncordon(self, path: StrPath) -> None:
        """Allow new replicas on a log dir again."""
        self._cordon(path, False)

    @uninterruptible
    def prefer_dir(self, topic: str, partition: int, path: StrPath | None) -> None:
        """Remember where a partition is to be created later (KIP-113), also after restarts.

        Args:
            path: None withdraws the last preference.

        Raises:
            PartitionExistsError: the partition exists already; move it.
        """
        self._check_owner()
        key = TopicPartition(validate_topic(topic), validate_partition(partition))
        if path is None:
            self._withdraw_wish(key)
            return
        if key in self._replicas:
            raise PartitionExistsError(topic=topic, partition=partition)
        log_dir = self._dir_named(path)
        with self._change_of(log_dir.path):
            settings = log_dir.settings
            earlier = [d.settings.preferred.get(key, 0) for d in self._replicas.log_dirs]
            # the latest preference counts
            wished_ms = max(time.time_ns() // 1_000_000, max(earlier) + 1)
            preferred = {**settings.preferred, key: wished_ms}
            log_dir.change_settings(settings._replace(preferred=preferred))

    # --- internals --------------------------------------------------------------------------------

    def _checkpoint(self, log_dir: LogDir) -> None:
        """Write a log dir's checkpoints before it is taken out, so that an older copy shows."""
        keeper = self._keepers.get(log_dir.path)
        try:
            if keeper is not None:
                keeper.write_offsets(is_last=True)
        except OSError as error:
            raise log_dir.failed(error) from error

    def _withdraw_wish(self, key: TopicPartition) -> None:
        for log_dir in self._replicas.log_dirs:
            if key in log_dir.settings.preferred:
                with self._change_of(log_dir.path):
                    log_dir.change_settings(log_dir.settings.without(key))

    def _cordon(self, path: StrPath, is_cordoned: bool) -> None:
        self._check_owner()
        log_dir = self._dir_named(path)
        with self._change_of(log_dir.path):
            log_dir.change_settings(log_dir.settings._replace(is_cordoned=is_cordoned))

    def _remove_empty(self, log_dir: LogDir) -> tuple[TopicPartition, ...]:
        """Take an empty log dir out of the store; meanwhile no replica is placed on it."""
        from logstore.store.dirs.dir_return import refuse_unless_empty

        if log_dir.is_offline:
            reason = f"{log_dir.offline_reason}; what is on it is unknown: reopen it, or, if it"
            reason += f" is lost for good: logstore remove-dir --lost {log_dir.path}"
            raise LogDirOfflineError(path=log_dir.path, reason=reason)
        log_dir.check()
        keeper = self._keepers.get(log_dir.path)
        self._replicas.returning.add(log_dir)
        try:
            if keeper is not None:
                keeper.wait_idle(DROP_SECONDS_MAX)
            refuse_unless_empty(self, log_dir)
            self._membership.forget(log_dir.directory_id)
        except OSError as error:
            raise log_dir.failed(error) from error
        finally:
            self._replicas.returning.discard(log_dir)
        if keeper is not None:
            keeper.stop()
        self._drop_dir(log_dir)
        self._removed(log_dir.path)
        log_dir.release()
        return ()

    def _resolved(self, path: StrPath) -> str:
        """Resolve the path of a directory that may not exist yet."""
        from logstore.store.dirs.takeover import does_not_work
        from logstore.store.start.identity import resolve

        configured = resolve(path_of(path, "path"), self.patience_seconds)
        for resolved, reason in configured.bad.items():
            raise does_not_work(resolved, reason)
        return configured.paths[0]

    @contextmanager
    def _change_of(self, path: str) -> Iterator[str]:
        """Reserve a log dir for one change; a second change of it is refused."""
        mine = Claim()
        with self._changing:
            if path in self._changed:
                raise LogDirError(
                    path=path, reason="another change of it is under way", retriable=True
                )
            self._changed[path] = mine
        try:
            yield path
        except OSError as error:  # from a step before the log dir could report its own failure
            raise LogDirOfflineError(path=path, reason=reason_of(error)) from error
        finally:
            with self._changing:
                del self._changed[path], mine
