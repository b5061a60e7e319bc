"""Change one rule of a module, so that a test can check that a model notices it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def changed_rule(name: str, old: str, new: str, users: Iterable[str]) -> Iterator[None]:
    """Replace the functions of a module by those of its changed source.

    Args:
        name: the module.
        old: a piece of its source, which is there once.
        new: what replaces this piece.
        users: the modules that may have imported the functions.
    """
    module = importlib.import_module(name)
    source = inspect.getsource(module)
    assert source.count(old) == 1, old
    made: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source.replace(old, new), "changed", "exec"), made)
    with pytest.MonkeyPatch.context() as patch:
        for key, one in list(made.items()):
            if getattr(one, "__module__", "") == module.__name__ and inspect.isfunction(one):
                real = getattr(module, key)
                for user in users:
                    place = importlib.import_module(user)
                    if getattr(place, key, None) is real:
                        patch.setattr(place, key, one)
        yield
