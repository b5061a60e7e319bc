"""Give tests a store over several log dirs, and disk calls that fail for one of them."""

from __future__ import annotations

import os
from collections.abc import Callable

from logstore.disk import files
from logstore.store.store import LogStore


def failing(name: str, under: str, code: int) -> Callable[..., object]:
    """Make a disk call that fails for one log dir, by path or by descriptor."""
    real = getattr(files, name)

    def call(*arguments: object, **options: object) -> object:
        first = arguments[0]
        path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(first)
        if path == under or path.startswith(under + "/"):
            raise OSError(code, os.strerror(code), path)
        return real(*arguments, **options)

    return call


def fill(dirs: list[str]) -> None:
    """Make a store with one partition per dir."""
    with LogStore.open(dirs) as store:
        for number, path in enumerate(dirs):
            store.create("orders", number, log_dir=path).extend([b"x"] * 10)
