"""Give new files in a log dir the owner and the mode of Kafka's files.

Often, root runs a change of hands, and another user runs Kafka. If the new files belonged to root,
Kafka or the broker could not open them. Only root can change the owner of a file.
"""

from __future__ import annotations

import os
import stat

from logstore.disk import files
from logstore.disk.documents.meta_properties import FILE_NAME
from logstore.store.kafka.hands import KEPT

READABLE = 0o444


def give_tree(built: str, log_dir: str) -> None:
    """Give Kafka's owner and mode to all files and directories in a new directory of a log dir.

    If the log dir already has a directory of this name, the new directory gets the mode of the old
    directory. The mode of a file with several hard links does not change.

    Raises:
        OSError: the disk failed.
    """
    like = _model(log_dir)
    for entry in files.entries(built):
        path = os.path.join(built, entry.name)
        if entry.is_dir:
            for child in files.entries(path):
                if child.is_file:
                    _give_file(os.path.join(path, child.name), like)
            origin = os.path.join(log_dir, entry.name)
            mode = files.stat(origin).st_mode if files.exists(origin) else _mode_of_dirs(like)
            _give_dir(path, like, mode)
        elif entry.is_file:
            _give_file(path, like)
    _give_dir(built, like, _mode_of_dirs(like))


def give_one(path: str, log_dir: str) -> None:
    """Give Kafka's owner and mode to a file or directory in a log dir. Raises OSError."""
    like = _model(log_dir)
    if stat.S_ISDIR(files.lstat(path).st_mode):
        _give_dir(path, like, _mode_of_dirs(like))
    else:
        _give_file(path, like)


def _model(log_dir: str) -> os.stat_result:
    """Return the status of Kafka's `meta.properties`, or of the log dir if the file is missing."""
    for place in (os.path.join(log_dir, KEPT), log_dir):
        if files.exists(os.path.join(place, FILE_NAME)):
            return files.stat(os.path.join(place, FILE_NAME))
    return files.stat(log_dir)


def _mode_of_dirs(like: os.stat_result) -> int:
    """Return a mode for directories, so that users that may read the files may enter them."""
    return like.st_mode | (like.st_mode & READABLE) >> 2


def _give_file(path: str, like: os.stat_result) -> None:
    fd = files.open_regular(path, files.READ)
    try:
        _give(fd, like, like.st_mode & 0o666)
    finally:
        files.close(fd)


def _give_dir(path: str, like: os.stat_result, mode: int) -> None:
    fd = files.open_file(path, files.DIRECTORY | os.O_NOFOLLOW)
    try:
        _give(fd, like, mode)
    finally:
        files.close(fd)


def _give(fd: int, like: os.stat_result, mode: int) -> None:
    """Change the owner and the mode of a file that this user has made, durably."""
    facts, user = files.fstat(fd), os.geteuid()
    if facts.st_uid != user:
        return
    is_linked = stat.S_ISREG(facts.st_mode) and facts.st_nlink > 1
    mode = stat.S_IMODE(facts.st_mode if is_linked else mode)
    is_owned = user != 0 or (facts.st_uid, facts.st_gid) == (like.st_uid, like.st_gid)
    if is_owned and mode == stat.S_IMODE(facts.st_mode):
        return
    if not is_owned:
        files.change_owner(fd, like.st_uid, like.st_gid)
    files.change_mode(fd, mode)
    files.sync_names(fd)
