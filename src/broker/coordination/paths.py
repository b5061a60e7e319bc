"""Check and split the paths of znodes."""

from __future__ import annotations

ROOT = "/"


def check_path(path: str) -> str:
    """Check that a path follows ZooKeeper's rules, and return it. Raises ValueError or TypeError.

    A path begins with `/`. No part of a path is empty, `.` or `..`, and a path has no control
    characters.
    """
    if not isinstance(path, str):
        raise TypeError(f"the path of a znode is {path!r}, not text")
    if path != ROOT:
        parts = path.split("/")
        if parts[0] or len(parts) < 2 or {"", ".", ".."} & set(parts[1:]):
            raise ValueError(f"{path!r} is not the path of a znode, such as /brokers/ids")
        if not all(map(_is_allowed, path)):
            raise ValueError(f"{path!r} has a character that the path of a znode must not have")
    return path


def _is_allowed(character: str) -> bool:
    """Check that ZooKeeper does not refuse a character."""
    return (
        "\x1f" < character < "\x7f"
        or "\x9f" < character < "\ud800"
        or "\uf8ff" < character < "\ufff0"
    )


def parent_of(path: str) -> str:
    """Return the path of the parent. The root is its own parent."""
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]
