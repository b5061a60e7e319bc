"""Map a range of a file for one bulk read, so that a bad or slow disk cannot stop the process.

While the disk handles a page fault in a map, the thread holds the interpreter's lock. An unreadable
block kills the process with SIGBUS. So the pages of a range are loaded (*populated*) before they
are read. `madvise(MADV_POPULATE_READ)` loads the pages. The call that populates a range uses
ctypes, so it releases the lock; it reports an unreadable page as EFAULT. The range is read as soon
as its pages are loaded. After the read, no view of the map is left, unless the caller asked for
zero-copy.

A range of less than 64 KiB is read with `pread`, without a map. If a map fails, the range is also
read with `pread`: the kernel is older than 5.14 and answers EINVAL; the file system does not
support maps; or a page is unreadable. If a page is unreadable, `pread` reports the real error.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

import numpy as np

from logstore.disk import files

MADV_POPULATE_READ = 22
MAP_BYTES_MIN = 64 * 1024

_PAGE_BYTES = mmap.ALLOCATIONGRANULARITY
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

map_file = mmap.mmap


def _populate(address: int, size_bytes: int) -> None:
    """Load pages without holding the interpreter's lock; an unreadable page raises OSError."""
    while _libc.madvise(address, size_bytes, MADV_POPULATE_READ) != 0:
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))


populate = _populate


def _map(fd: int, size_bytes: int, position: int) -> memoryview:
    """Map and populate a range; the map exists until the returned view is dropped."""
    start = position - position % _PAGE_BYTES
    length = position + size_bytes - start
    mapped = map_file(fd, length, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED, offset=start)
    whole = np.frombuffer(mapped, np.uint8)
    populate(whole.__array_interface__["data"][0], length)
    return whole.data[position - start :]


def view(fd: int, size_bytes: int, position: int) -> memoryview | bytes:
    """Read `size_bytes` at `position`; return a view of a populated map, or bytes without a map.

    The result is shorter only if the file ends earlier. The caller must ensure that no thread
    shortens the file during the call.

    Raises:
        OSError: the disk could not read the bytes.
    """
    if size_bytes < MAP_BYTES_MIN:
        return files.read_up_to(fd, size_bytes, position)
    try:
        size_bytes = min(size_bytes, files.fstat(fd).st_size - position)
        if size_bytes <= 0:
            return b""
        return _map(fd, size_bytes, position)
    except (OSError, ValueError):
        return files.read_up_to(fd, size_bytes, position)
