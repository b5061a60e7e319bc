"""Get the document for `screen`: from a broker's page, or from the process with the open store."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from broker.page.documents import VERSION
from broker.page.facts import SOUND
from logstore.errors import LogStoreError
from logstore.store.admin.client import AdminClient

TARGET = f"/api/v{VERSION}/summary"
SECONDS = 5.0
DOCUMENT_BYTES_MAX = 8 << 20
TOPICS_MAX = 10
Row = dict[str, Any]


class NoAnswerError(Exception):
    """Report that there is no document now. The message gives the reason."""


def address_of(url: str) -> tuple[str, int]:
    """Read the host and the port of a page; raise ValueError if the URL has another form."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname or parts.username is not None:
        raise ValueError(f"{url!r} is not of the form http://HOST:PORT")
    return parts.hostname, parts.port or 80


def from_page(url: str) -> Row:
    """Get the document from a broker's page.

    Raises:
        NoAnswerError: the page does not answer, or sends something else.
        ValueError: the URL is not of the form http://HOST:PORT.
    """
    connection = http.client.HTTPConnection(*address_of(url), timeout=SECONDS)
    try:
        connection.request("GET", TARGET)
        answer = connection.getresponse()
        data = answer.read(DOCUMENT_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswerError(f"{url} does not answer: {error}") from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise NoAnswerError(f"{url} answers with status {answer.status}")
    return _checked(url, data)


def _checked(url: str, data: bytes) -> Row:
    try:
        document = json.loads(data) if len(data) <= DOCUMENT_BYTES_MAX else None
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise NoAnswerError(f"{url} is not the page of a broker, or it has another version")
    return document


def from_owner(owner: AdminClient) -> Row:
    """Get the document from the process that has a store open, through its admin socket.

    This document has no rates, no groups and no requests, because only a broker knows them.

    Raises:
        NoAnswerError: the process has ended, or does not answer.
    """
    try:
        dirs = owner.call("describe_dirs", timeout=SECONDS)["log_dirs"]
        moves = owner.call("move.status", timeout=SECONDS)["moves"]
    except LogStoreError as error:
        raise NoAnswerError(str(error)) from error
    return summary_of(dirs, moves, owner.pid or 0, time.time_ns() // 1_000_000)


def summary_of(dirs: list[Row], moves: list[Row], pid: int, at_ms: int) -> Row:
    """Make the document of a store from the descriptions of its log dirs and moves."""
    topics: dict[str, list[int]] = {}
    offline = 0
    for one in dirs:
        for each in one["partitions"]:
            if not each["is_temporary"]:
                topics.setdefault(each["topic"], []).append(each["size"])
                offline += not one["is_live"]
    rows: list[Row] = [
        {"name": name, "partition_count": len(sizes), "size_bytes": sum(sizes)}
        for name, sizes in topics.items()
    ]
    return {
        "version": VERSION,
        "at_ms": at_ms,
        "pid": pid,
        "trouble": {
            "bad_log_dirs": sum(one["state"] not in SOUND for one in dirs),
            "offline_partitions": offline,
            "under_replicated_partitions": 0,
            "failed_moves": sum(one["state"] == "failed" for one in moves),
        },
        "log_dirs": [_dir(one) for one in dirs],
        "moves": moves,
        "topics": sorted(rows, key=lambda row: (-row["size_bytes"], row["name"]))[:TOPICS_MAX],
    }


def _dir(one: Mapping[str, Any]) -> Row:
    kept = {key: one[key] for key in ("path", "state", "reason", "total_bytes", "usable_bytes")}
    return kept | {
        "partition_count": len(one["partitions"]),
        "size_bytes": sum(each["size"] for each in one["partitions"]),
    }
