"""The collector rests while logs are loaded, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from logstore import LogStore
from logstore.store.start import opening
from logstore.store.start.collector import AT_REST


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """Have a collector before each test, and after it."""
    gc.enable()
    yield
    gc.enable()


def test_blocks_overlap() -> None:
    with AT_REST:
        with AT_REST:
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_program_without_a_collector_keeps_it_off() -> None:
    gc.disable()
    with AT_REST:
        pass
    assert not gc.isenabled()


def test_an_error_ends_it() -> None:
    with pytest.raises(KeyboardInterrupt), AT_REST:
        raise KeyboardInterrupt
    assert gc.isenabled()


def test_a_start_rests_while_it_loads(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """No collection looks at what is being made; a store in use has its collector again."""
    seen = []
    load = opening.Loader.load

    def watched(self: opening.Loader) -> None:
        seen.append(gc.isenabled())
        load(self)

    monkeypatch.setattr(opening.Loader, "load", watched)
    with LogStore.open(str(tmp_path)):
        assert gc.isenabled()
    assert seen == [False]
