"""Keep every test apart from the machine it runs on."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import weakref
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from logstore import LogStore
from support.inside import abandon
from support.small_ballast import use_small_ballast

pytest_plugins = ["support.lanes"]
HAS_FAILED = pytest.StashKey[bool]()
SHARED_STORES: weakref.WeakSet[LogStore] = weakref.WeakSet()  # of fixtures that outlive a test

# Examples are drawn anew at each run; a failure prints what replays it, no matter how long it took.
settings.register_profile("logstore", deadline=None, print_blob=True)
settings.load_profile("logstore")

# Thousands of tests start an interpreter, which takes half as long again where nothing compiled
# is kept. The workers of a parallel run are such interpreters too.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

use_small_ballast()

# A shell starts what runs in its background with Ctrl-C ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let go of the stores that a failed test left open: their threads would trouble the next.

    Its fixtures have ended in order before: one whose store is gone could not.
    """
    report = yield
    item.stash[HAS_FAILED] = report.failed or item.stash.get(HAS_FAILED, False)
    if item.stash[HAS_FAILED] and call.when == "teardown":
        for store in _stores():
            if store not in SHARED_STORES:
                with contextlib.suppress(Exception):
                    abandon(store)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Note the stores of a fixture that other tests use after a test that fails."""
    made = yield
    if fixturedef.scope != "function":
        SHARED_STORES.update(_stores())
    return made


def _stores() -> list[LogStore]:
    # By type: `isinstance` asks the object, and a test's fakes may not stand being asked.
    return [found for found in gc.get_objects() if issubclass(type(found), LogStore)]


@pytest.fixture(autouse=True)
def same_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the user's own log dirs and terminal from the tests, and put the directory back."""
    for name in [name for name in os.environ if name.startswith("LOGSTORE_LOG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")
    here = os.getcwd()
    yield
    os.chdir(here)
