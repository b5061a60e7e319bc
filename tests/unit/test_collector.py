"""The garbage collector is switched off while logs are loaded, and only then."""

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
    """Switch the collector on before and after each test."""
    gc.enable()
    yield
    gc.enable()


def test_blocks_overlap() -> None:
    """When the last block ends, the collector is switched on again."""
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
    """After an interrupt in the block, the collector is on."""
    with pytest.raises(KeyboardInterrupt), AT_REST:
        raise KeyboardInterrupt
    assert gc.isenabled()


def test_a_start_rests_while_it_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No collection examines the objects of a start; after that, the collector is on."""
    seen = []
    load = Loader.load

    def watched(self: Loader) -> None:
        seen.append(gc.isenabled())
        load(self)

    monkeypatch.setattr(Loader, "load", watched)
    with LogStore.open(tmp_path):
        assert gc.isenabled()
    assert seen == [False]
