"""Answer a request for a page or a document from facts. Nothing here does I/O."""

from __future__ import annotations

import functools
import json
import pkgutil
from collections.abc import Callable
from typing import NamedTuple

from broker.page.documents import DOCUMENTS, VERSION, NoSuchThingError, index
from broker.page.facts import Facts
from broker.page.paging import Asked, parse
from broker.page.views import lists
from broker.page.views.frame import document, search
from broker.page.views.markup import Html
from broker.page.views.overview import overview

HTML_ROWS_MAX = 200
OK, BAD_REQUEST, NOT_FOUND = 200, 400, 404
HTML, JSON, TEXT = "text/html", "application/json", "text/plain"
# For each path, a file and its type. A browser requests the last path when it shows a document.
FILES = {
    "/style.css": ("style.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/favicon.ico": ("icon.svg", "image/svg+xml"),
}
API = f"/api/v{VERSION}/"


class Response(NamedTuple):
    """An answer."""

    status: int
    kind: str
    body: bytes


class View(NamedTuple):
    """A page: its title, its content, and the label of its search ("" without a search)."""

    title: str
    live: Callable[[Facts, Asked], Html]
    search: str = ""


VIEWS = {
    "/": View("Overview", overview),
    "/partitions": View("Partitions", lists.partitions, "Partition, such as orders-3"),
    "/topics": View("Topics", lists.topics, "Topic"),
    "/topic": View("Topic", lists.topic),
    "/groups": View("Groups", lists.groups, "Group"),
    "/group": View("Group", lists.group),
}


def respond(target: str, facts: Callable[[], Facts]) -> Response:
    """Answer a request.

    Args:
        target: the path and the query, as the client sent them.
        facts: a function that returns the facts; called only if the answer needs facts.
    """
    if not (target.startswith("/") and target.isascii() and target.isprintable()):
        return error(BAD_REQUEST, "the address of a page begins with a slash")
    path, _, query = target.partition("?")
    query = query.partition("#")[0]
    if path in FILES:
        name, kind = FILES[path]
        return Response(OK, kind, _file(name))
    try:
        asked = parse(query)
    except ValueError as fault:
        return error(BAD_REQUEST, str(fault))
    try:
        if path in VIEWS:
            return _page(path, asked, facts())
        if path in ("/api", "/api/"):
            return _json(index([*DOCUMENTS]))
        write = DOCUMENTS.get(path.removeprefix(API)) if path.startswith(API) else None
        if write is not None:
            return _json(write(facts(), asked))
    except NoSuchThingError as fault:
        return error(NOT_FOUND, str(fault))
    return error(NOT_FOUND, "there is no such page; see / and /api")


def error(status: int, reason: str) -> Response:
    """Answer with an error. The text does not quote the client."""
    return Response(status, TEXT, f"{reason}\n".encode())


def _page(path: str, asked: Asked, facts: Facts) -> Response:
    view, asked = VIEWS[path], asked._replace(size=min(asked.size, HTML_ROWS_MAX))
    live = view.live(facts, asked)
    if asked.is_fragment:
        return Response(OK, HTML, _encoded(live))
    title = (
        f"{view.title} {asked.name}" if asked.name and path in ("/topic", "/group") else view.title
    )
    form = Html()
    if view.search:
        form = search(path, asked, view.search, has_show=path == "/partitions")
    return Response(OK, HTML, _encoded(document(facts, path, title, form, live)))


def _json(content: object) -> Response:
    # The JSON has only ASCII, because half of a surrogate pair in a name cannot be encoded as
    # UTF-8.
    return Response(OK, JSON, json.dumps(content, separators=(",", ":")).encode() + b"\n")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


@functools.cache
def _file(name: str) -> bytes:
    data = pkgutil.get_data("broker.page.views", name)
    assert data is not None, f"the package lacks {name}"
    return data
