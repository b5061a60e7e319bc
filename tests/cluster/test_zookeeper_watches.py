"""Test orders of answers and events in which a watch could miss a change."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.protocol.states import EventType

from broker.coordination.callbacks import Callbacks
from broker.coordination.errors import (
    AccessDeniedError,
    NoNodeError,
    NotConnectedError,
    SessionExpiredError,
)
from broker.coordination.verbs import Event, EventKind
from cluster.zookeeper_watches import Watch, WatchSetter
from support.heard import Heard

CHANGED, DELETED, LOST = (
    SimpleNamespace(type=kind) for kind in (EventType.CHANGED, EventType.DELETED, EventType.NONE)
)


def stat(mzxid: int) -> Any:
    """Make the state of a znode that was written last at a zxid."""
    return SimpleNamespace(czxid=1, mzxid=mzxid, pzxid=1, version=0, ephemeralOwner=0)


class Script:
    """A server whose answers are written in advance, and which keeps the given events."""

    def __init__(self, *answers: tuple[str, Any]) -> None:
        self.answers = list(answers)
        self.events: list[Callable[[Any], None]] = []
        self.is_connected = True
        self.callbacks = Callbacks("script")
        client = SimpleNamespace(get_async="get", exists_async="exists")
        self.setter = WatchSetter(client, self.read, self.callbacks, lambda: self.is_connected)

    def read(self, path: str, call: str, event: Callable[[Any], None]) -> Any:
        """Return the next answer."""
        expected, answer = self.answers.pop(0)
        assert call == expected
        self.events.append(event)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def calls(self, heard: Heard[Event]) -> list[Event]:
        """Return the calls that were made or are queued by now."""
        last = Heard[None]()
        self.callbacks.call(last, None)
        last.next()
        return heard.all()


def test_an_event_of_an_earlier_attempt_does_not_use_the_watch_up() -> None:
    """A znode is created while a watch is being set: only later changes count."""
    script = Script(
        ("get", NoNodeError("/a")), ("exists", stat(2)), ("get", (b"x", stat(3)))
    )  # fmt: skip
    heard = Heard[Event]()
    watch = Watch("/a", heard, is_of_children=False)
    znode = script.setter.set_first(watch, script.setter.set_on_node)
    assert znode and znode.mzxid == 3
    script.events[1](CHANGED)
    assert script.calls(heard) == []
    script.events[2](CHANGED)
    script.events[2](DELETED)
    assert script.calls(heard) == [Event(EventKind.CHANGED, "/a")]


def test_a_watch_that_was_not_set_is_never_called() -> None:
    """Its caller gets an error, so it does not wait for an event."""
    script = Script(("get", NotConnectedError(1)), ("get", (b"", stat(1))))
    heard = Heard[Event]()
    watch = Watch("/a", heard, is_of_children=False)
    try:
        script.setter.set_first(watch, script.setter.set_on_node)
    except NotConnectedError:
        script.events[0](CHANGED)
    assert script.calls(heard) == []


def test_a_watch_is_set_again_until_the_server_answers() -> None:
    """After several time-outs and losses, the change in between fires the watch once."""
    script = Script(
        ("get", (b"", stat(1))),
        ("get", NotConnectedError(1)),
        ("get", NotConnectedError(1)),
        ("get", (b"", stat(5))),
    )
    heard = Heard[Event]()
    watch = Watch("/a", heard, is_of_children=False)
    script.setter.set_first(watch, script.setter.set_on_node)
    script.is_connected = False
    script.events[0](LOST)
    assert script.calls(heard) == []
    assert len(script.events) == 1
    script.is_connected = True
    script.callbacks.call(script.setter.set_again)
    assert script.calls(heard) == [Event(EventKind.CHANGED, "/a")]
    assert script.answers == []


def test_no_watch_fires_after_the_end() -> None:
    """Neither a change nor an earlier loss fires a watch."""
    script = Script(("get", (b"", stat(1))))
    heard = Heard[Event]()
    script.setter.set_first(Watch("/a", heard, is_of_children=False), script.setter.set_on_node)
    script.setter.stop()
    script.events[0](CHANGED)
    assert script.calls(heard) == []


@pytest.mark.parametrize("refusal", [AccessDeniedError("/a"), TypeError("no answer")])
def test_regression_a_watch_that_is_refused_does_not_stop_the_others(refusal: Exception) -> None:
    """It fires, so that its caller reads and gets the error; the next watch is set again."""
    first: tuple[str, Any] = ("get", (b"", stat(1)))
    script = Script(first, first, ("get", refusal), ("get", (b"", stat(5))))
    heard = Heard[Event]()
    for path in ("/a", "/b"):
        script.setter.set_first(Watch(path, heard, False), script.setter.set_on_node)
    for event in script.events[:2]:
        event(LOST)
    found = [Event(EventKind.CHANGED, path) for path in ("/a", "/b")]
    assert script.calls(heard) + script.calls(heard) == found
    script.setter.set_again()
    assert script.answers == []


def test_no_watch_is_set_again_after_the_end() -> None:
    """The session ended before the watches were set again, so none of them is called."""
    first: tuple[str, Any] = ("get", (b"", stat(1)))
    script = Script(first, first, ("get", SessionExpiredError(1)))
    heard = Heard[Event]()
    for path in ("/a", "/b"):
        script.setter.set_first(Watch(path, heard, False), script.setter.set_on_node)
    script.is_connected = False
    for event in script.events[:2]:
        event(LOST)
    assert script.calls(heard) == []
    script.is_connected = True
    script.setter.set_again()
    assert script.calls(heard) == []
    assert script.answers == []
