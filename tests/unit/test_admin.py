"""Commands are registered, and called by name; requests that may hang are limited."""

from __future__ import annotations

import threading

import pytest

from logstore import LogStoreError, UnknownPartitionError
from logstore.store.admin.admin import UNDERWAY_MAX, Admin, Arguments, Request
from logstore.store.admin.protocol import decode_line, encode_line


def ask(admin: Admin, command: object, **arguments: object) -> dict[str, object]:
    """Send a request, as the server does."""
    line = encode_line({"command": command, **arguments})
    return decode_line(admin.answer(line, lambda line: None, lambda: False))


def test_a_command_gets_its_arguments_and_tells_of_progress() -> None:
    """A call in this process gives the same result as through the socket: JSON's types."""
    admin = Admin()
    heard: list[object] = []

    def work(arguments: Arguments, request: Request) -> object:
        request.progress({"done": 1})
        assert not request.is_abandoned
        return {"sum": sum(arguments["numbers"]), "pair": (1, 2)}

    admin.register("add", work)
    expected = {"sum": 6, "pair": [1, 2]}
    assert admin.call("add", {"numbers": [1, 2, 3]}, heard.append) == expected
    assert heard == [{"done": 1}]
    assert ask(admin, "add", numbers=[1, 2, 3]) == {"result": expected}
    assert "1 commands" in repr(admin)


def test_a_name_is_given_once() -> None:
    """A second registration is refused; after a removal, the name can be registered again."""
    admin = Admin()
    admin.register("move", lambda arguments, request: 1)
    with pytest.raises(ValueError, match="move"):
        admin.register("move", lambda arguments, request: 2)
    admin.unregister("move")
    admin.unregister("move")
    with pytest.raises(LogStoreError, match="no command 'move'"):
        admin.call("move")


def test_whatever_goes_wrong_is_answered() -> None:
    """Nonsense, unknown commands, errors of the store and bugs are all answered."""
    admin = Admin()

    def lose(arguments: Arguments, request: Request) -> object:
        raise UnknownPartitionError(topic="orders", partition=arguments["partition"])

    def fall(arguments: Arguments, request: Request) -> object:
        raise KeyError("a bug")

    admin.register("lose", lose)
    admin.register("fall", fall)
    error = ask(admin, "lose", partition=7)["error"]
    assert isinstance(error, dict)
    assert error["kind"] == "UnknownPartitionError"
    assert error["facts"] == {"topic": "orders", "partition": 7}
    assert "a bug" in str(ask(admin, "fall"))
    for command in ("none", None, 7, ["x"]):
        assert "there is no command" in str(ask(admin, command))
    for line in (b"", b"[]", b"\xff{"):
        assert b'"error"' in admin.answer(line, lambda line: None, lambda: False)


def test_requests_that_hang_leave_room_for_those_that_cannot() -> None:
    """The 17th request that may call a disk is refused, with the other names."""
    admin = Admin()
    gate = threading.Event()
    started = threading.Semaphore(0)

    def hang(arguments: Arguments, request: Request) -> object:
        started.release()
        gate.wait()
        return "over"

    admin.register("hang", hang)
    admin.register("look", lambda arguments, request: "seen", is_quick=True)
    answers: list[object] = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask(admin, "hang")))
        for _ in range(UNDERWAY_MAX)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            started.acquire()
        assert "16 requests are already running" in str(ask(admin, "hang"))
        assert ask(admin, "look") == {"result": "seen"}
    finally:
        gate.set()
        for thread in threads:
            thread.join()
    assert answers == [{"result": "over"}] * UNDERWAY_MAX
    assert ask(admin, "hang") == {"result": "over"}
