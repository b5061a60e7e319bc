"""Sync a file beside the copying to it, so that the sync at the end has little to wait for.

A disk takes its time to make a GiB durable and leaves the processor free meanwhile. So a thread
syncs what was copied so far, one sync at a time, while the next bytes are copied and checked. None
of these syncs is relied on: the one at the end is a whole one, and it begins when they have ended.

The kernel tells of bytes that it could not write once, to whoever syncs first. So the failure of an
early sync takes the log dir offline from its own thread, whether or not anybody still waits for it.
"""

from __future__ import annotations

import threading

from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError
from logstore.log.cache import Handle

EARLY_SYNC_BYTES = 64 << 20
LOOK_SECONDS = 0.1


class EarlySync:
    """One sync that is under way; it keeps the file open until it has ended.

    Raises:
        RuntimeError: there is no thread to be had.
    """

    def __init__(self, handle: Handle, log_dir: LogDir, path: str) -> None:
        self._handle = handle
        self._log_dir = log_dir
        self._path = path
        self._failure: LogStoreError | None = None  # its thread writes it; read once that ended
        self._thread = threading.Thread(target=self._run, name="ReplicaMoveSync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            files.sync_data(self._handle.fd)
        except OSError as error:
            self._failure = self._log_dir.failed(error, self._path)
            self._failure.__cause__ = error

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._thread.is_alive()

    def finish(self) -> None:
        """Wait for its end; raises LogDirOfflineError if it failed."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def let_go(self) -> None:
        """Wait for its end unless its disk hangs or is gone; then it ends when that answers."""
        while self._thread.is_alive() and not self._log_dir.is_refusing:
            self._thread.join(LOOK_SECONDS)
