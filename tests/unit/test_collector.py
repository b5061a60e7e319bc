"""The collector rests while logs are loaded, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import LogStore
from logstore.store.collector import AT_REST
from logstore.store.start.loader import Loader


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """Have a collector before each test, and after it."""
    gc.enable()
    yield
    gc.enable()


def test_blocks_overlap() -> None:
    """The last block that ends lets the collector go on."""
    with AT_REST:
        with AT_REST:
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_program_without_a_collector_keeps_it_off() -> None:
    """If the program has switched the collector off, a start does not switch it on."""
    gc.disable()
    with AT_REST:
        pass
    assert not gc.isenabled()


def test_an_error_ends_it() -> None:
    """An interrupt in the middle leaves the collector on."""
    with pytest.raises(KeyboardInterrupt), AT_REST:
        raise KeyboardInterrupt
    assert gc.isenabled()


def test_a_start_rests_while_it_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No collection looks at what is being made; a store in use has its collector again."""
    seen = []
    load = Loader.load

    def watched(self: Loader) -> None:
        seen.append(gc.isenabled())
        load(self)

    monkeypatch.setattr(Loader, "load", watched)
    with LogStore.open(tmp_path):
        assert gc.isenabled()
    assert seen == [False]
