"""Keep a user's settings of one log dir: whether it is cordoned, and its preferred partitions.

    log-dir-settings   {"version": 1, "kind", "directory_id", "is_cordoned",
                        "preferred": [[topic, partition, wished_ms], ...]}

If the checksum of the file is wrong, or if the file belongs to another log dir, the file counts as
missing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import NamedTuple

from logstore.disk import files
from logstore.disk.documents import fields
from logstore.disk.documents.checkpoint import VERSION, read_document, write_document
from logstore.errors import CorruptCheckpointError, UnsupportedFormatError
from logstore.names import TopicPartition

SETTINGS_NAME = "log-dir-settings"

MS_MAX = 2**62

NO_WISHES: Mapping[TopicPartition, int] = {}


class DirSettings(NamedTuple):
    """The user's settings of one log dir.

    Attributes:
        preferred: the partitions that must be created in this log dir, each with the time (ms) at
            which the user requested this.
    """

    is_cordoned: bool = False
    preferred: Mapping[TopicPartition, int] = NO_WISHES

    def without(self, key: TopicPartition) -> DirSettings:
        """Return the same settings without the preference for one partition."""
        rest = {other: ms for other, ms in self.preferred.items() if other != key}
        return self._replace(preferred=rest)


def write_settings(
    dir_path: str, directory_id: str, settings: DirSettings, guard: files.Guard = nullcontext
) -> None:
    """Replace the settings of a log dir durably. Raises OSError."""
    rows = [[topic, partition, ms] for (topic, partition), ms in settings.preferred.items()]
    document = {
        "version": VERSION,
        "kind": SETTINGS_NAME,
        "directory_id": directory_id,
        "is_cordoned": settings.is_cordoned,
        "preferred": rows,
    }
    write_document(os.path.join(dir_path, SETTINGS_NAME), document, guard)


def read_settings(dir_path: str, directory_id: str) -> tuple[DirSettings, str]:
    """Read the settings of a log dir; return the settings and a warning ("" if there is none).

    If the file cannot be used, the settings are the defaults, and the warning describes the fault.

    Raises:
        OSError: the disk failed.
    """
    path = os.path.join(dir_path, SETTINGS_NAME)
    try:
        document = read_document(path, files.LIST_BYTES_MAX)
        if document is None:
            return DirSettings(), ""
        fields.check_kind(document, SETTINGS_NAME, directory_id)
        preferred = {
            fields.partition_key(topic, partition): fields.number(wished_ms, "a time", MS_MAX)
            for topic, partition, wished_ms in fields.rows(document["preferred"], "preferred", 3)
        }
        return DirSettings(fields.flag(document["is_cordoned"], "is_cordoned"), preferred), ""
    except (CorruptCheckpointError, UnsupportedFormatError, PermissionError) as error:
        return DirSettings(), str(error)
    except fields.WRONG as error:
        return DirSettings(), fields.told(error)
