"""Sync a file while it is still being copied, so that the sync at the end is short.

A disk needs a long time to make a GiB durable. During this time, the processor is idle. So a thread
syncs what was copied so far, while the next bytes are copied and checked. Only one early sync runs
at a time. Nothing relies on the early syncs, because the sync at the end covers all bytes. The sync
at the end begins after the early syncs have ended.

If the kernel cannot write some bytes, the first sync gets the error, and later syncs succeed. So if
an early sync fails, the thread of the sync takes the log dir offline, even if the move no longer
waits for the sync.
"""

from __future__ import annotations

from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.disk.threads import Thread
from logstore.errors import LogStoreError
from logstore.log.segments.cache import Handle

EARLY_SYNC_BYTES = 64 << 20
LOOK_SECONDS = 0.1


class EarlySync:
    """Run one sync in a thread; the file stays open until the sync has ended.

    Raises:
        RuntimeError: no thread can be started.
    """

    def __init__(self, handle: Handle, log_dir: LogDir, path: str) -> None:
        self._handle = handle
        self._log_dir = log_dir
        self._path = path
        # Other threads read `_failure` only after the syncing thread has ended.
        self._failure: LogStoreError | None = None
        self._thread = Thread(target=self._run, name="ReplicaMoveSync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            files.sync_data(self._handle.fd)
        except OSError as error:
            self._failure = self._log_dir.failed(error, self._path)
            self._failure.__cause__ = error

    @property
    def is_over(self) -> bool:
        """Whether the sync has ended, with or without an error."""
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Wait for the end of the sync; raise LogDirOfflineError if it failed."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def let_go(self) -> None:
        """Wait for the end of the sync; do not wait if the disk hangs or is OFFLINE."""
        while self._thread.is_alive() and not self._log_dir.is_refusing:
            self._thread.join(LOOK_SECONDS)
