"""Ask the page of a broker, read its tables, and make what it shows."""

from __future__ import annotations

import html
import json
import re
import urllib.error
import urllib.request
from html.parser import HTMLParser
from typing import Any

import pytest

from broker import Broker
from broker.page import page
from broker.wire.messages import OffsetCommitRequest
from support.kafka_client import KafkaClient

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</td></tr></table><h1>x",
    "javascript:alert(1)",
    "&lt;b&gt;",
    "\x00\x1b[2J\u202e\ud800",
]


class Seen(HTMLParser):
    """Collect the elements, the attributes and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def gather_always(patch: pytest.MonkeyPatch) -> None:
    """Let pages gather their facts anew for each answer, without a rest between two of them."""
    patch.setattr(page, "FRESH_SECONDS", 0.0)
    patch.setattr(page, "GATHERING_SHARE", 1e9)
    patch.setattr(page, "WORK_SHARE", 1.0)


def got(broker: Broker, path: str) -> str:
    """Get a page or a document; raises HTTPError for an error."""
    with urllib.request.urlopen(broker.http_url + path, timeout=20) as answer:
        return str(answer.read().decode())


def document(broker: Broker, name: str) -> Any:
    """Get a document."""
    return json.loads(got(broker, f"api/v1/{name}"))


def status_of(broker: Broker, path: str) -> int:
    """Get the status of an answer."""
    try:
        with urllib.request.urlopen(broker.http_url + path, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def cells_of(text: str) -> list[dict[str, str]]:
    """Give the rows of all tables of a page: exact values by heading, or else the text."""
    rows = []
    for row in re.findall(r"<tr role=\"row\">(.*?)</tr>", text, re.DOTALL):
        found = {}
        for label, inside in re.findall(r'data-label="([^"]*)">(.*?)</t[hd]>', row, re.DOTALL):
            exact = re.search(r'<data value="([^"]*)"', inside)
            found[label] = exact[1] if exact else html.unescape(re.sub("<[^>]*>", "", inside))
        if found:
            rows.append(found)
    return rows


def offsets_of(topic: str, offset: int) -> list[Any]:
    """Make the topics of a request to commit an offset of partition 0."""
    rows = [OffsetCommitRequest.OffsetCommitRequestPartition(0, offset)]
    return [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=rows)]


def commit(client: KafkaClient, group: str, topic: str, offset: int) -> None:
    """Commit an offset without joining."""
    answer = client.call("OffsetCommit", 8, group_id=group, topics=offsets_of(topic, offset))
    assert answer.topics[0].partitions[0].error_code == 0
