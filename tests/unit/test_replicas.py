"""An interrupted reservation or claim does not block other threads."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from logstore import LogStore
from logstore.names import TopicPartition
from logstore.store.replicas import Replicas
from support.hanging import QUIET
from support.inside import state_of

KEY = TopicPartition("orders", 0)


class Interrupting:
    """A lock after whose release an interrupt comes."""

    def __init__(self, lock: Any, at: int) -> None:
        self.lock, self.left = lock, at

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def refuse_to_wait(*_: object) -> None:
    """Fail in a place where a test would wait forever."""
    raise AssertionError("it is reserved still")


def test_regression_an_interrupted_reservation_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interrupt at the begin or end, no thread could create that replica any more."""
    with LogStore.open([tmp_path / "a"], config=QUIET, admin_socket=False) as store:
        replicas = store.host.replicas
        with monkeypatch.context() as patch:
            patch.setattr(replicas, "_changing", Interrupting(replicas._changing, 1))
            with pytest.raises(KeyboardInterrupt):
                store.create(*KEY)

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Replicas, "give_up", interrupted)
            with pytest.raises(KeyboardInterrupt), replicas.reserved(KEY):
                pass
        monkeypatch.setattr(replicas._changes, "wait", refuse_to_wait)
        assert store.create(*KEY).append(b"x") == 0


def test_regression_an_interrupted_claim_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every later change of the log dir was refused, because another seemed to be running."""
    path = str(tmp_path / "a")
    with LogStore.open([path], config=QUIET, admin_socket=False) as store:
        claims = state_of(store).claims
        for at in (1, 2):
            with monkeypatch.context() as patch:
                patch.setattr(claims, "_changing", Interrupting(claims._changing, at))
                with pytest.raises(KeyboardInterrupt):
                    store.cordon(path)
            store.uncordon(path)


def test_a_reservation_takes_its_lock_without_a_line_of_python(tmp_path: Path) -> None:
    """An interrupt inside a Condition's `__enter__` would leave the lock locked forever."""
    entered = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == threading.__file__:
            entered.append(frame.f_code.co_name)

    with LogStore.open([tmp_path / "a"], config=QUIET, admin_socket=False) as store:
        sys.setprofile(note)
        try:
            with store.host.replicas.reserved(KEY):
                pass
        finally:
            sys.setprofile(None)
    assert not {"__enter__", "__exit__"} & set(entered)
