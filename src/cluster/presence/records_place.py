"""Find a directory on tmpfs for the records of failed log dirs (P4).

Other file systems are refused. If the records were on a disk, and this disk could no longer be
written, an old record could stay there. Then a log dir that has failed would look like a log dir
that lost nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress

from cluster.errors import ClusterStartError
from cluster.presence import boots
from logstore.disk import files

PROBE = "probe"
IN_MEMORY = ("tmpfs", "ramfs")
ADVICE = (
    "the records of failed log dirs must outlive the process, and need no disk: name a directory "
    "on tmpfs with --records; in a unit of systemd, /run/logstore is made by "
    "RuntimeDirectory=logstore and RuntimeDirectoryPreserve=yes, and in a container by "
    "--tmpfs /run/logstore"
)


def records_dir(parent: str, store_id: str) -> str:
    """Make the directory for the records of one store.

    Raises:
        ClusterStartError: the directory is not on tmpfs, or cannot be written.
    """
    path = os.path.join(os.path.abspath(parent), store_id)
    try:
        missing = _missing(path)
        above = os.path.dirname(missing[-1]) if missing else path
        kind = boots.mount_type(above)
        if kind not in IN_MEMORY:
            reason = f"{parent} is on {kind or 'no mount'}, not on tmpfs; {ADVICE}"
            raise ClusterStartError(reason=reason)
        for one in reversed(missing):
            with suppress(FileExistsError):  # another broker on this machine is starting, too
                files.make_dir(one)
        probe = os.path.join(path, PROBE)
        files.write_atomically(probe, b"")
        files.remove_if_there(probe)
    except OSError as error:
        reason = f"{parent} cannot be written ({error.strerror or error}); {ADVICE}"
        raise ClusterStartError(reason=reason) from error
    return path


def _missing(path: str) -> list[str]:
    """List the parts of a path that do not exist, the innermost directory first."""
    missing = []
    while not files.exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing
