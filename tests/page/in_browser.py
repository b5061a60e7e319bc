"""The page in a real browser: `make browser` runs this, because it needs Chromium.

The scene has several log dirs, of which one is offline, names that clients made up to do harm, a
group with lag, and a second page of partitions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from broker import Broker
from broker.page.text import shortened
from support.kafka_client import KafkaClient, batch_of
from support.pages import HOSTILE, commit, document, gather_always

PATHS = [
    "", "partitions", "partitions?search=many&page=2", "partitions?show=offline", "topics",
    "topic?name=orders", "groups", "group?name=billing",
]  # fmt: skip
# Chromium must connect to nothing but the page.
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
WIDTHS = (320, 400, 800, 1280)
CONFIG = {"http_listener": "127.0.0.1:0", "slow_request_ms": 1}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Start a broker with something to show."""
    root = tmp_path_factory.mktemp("page")
    patch = pytest.MonkeyPatch()
    gather_always(patch)
    paths = [root / "a", root / "b", root / ("c" * 200)]
    with Broker.start(paths, CONFIG) as running, KafkaClient(running.bootstrap_servers) as client:
        running.store.create_topic("many", 120)
        for name in ("orders", "live", "t" * 249):
            client.create(name)
            client.produce(name, batch_of(*[b"%d" % number for number in range(1234)]))
        for name in ("billing", *HOSTILE[:-1], "\x1b[2J\u202e", "g" * 3000):
            commit(client, name, "orders", 34)
        running.store.cordon(running.store.log_dirs[1])
        running.store.take_offline(running.store.log_dirs[2])
        yield running
    patch.undo()


class Seen:
    """A page in the browser, and what it asked for and complained about."""

    def __init__(self, context: BrowserContext, base: str) -> None:
        self.context, self.base = context, base
        self.addresses: list[str] = []
        self.complaints: list[str] = []
        context.on("request", lambda request: self.addresses.append(request.url))
        self.page: Page = context.new_page()
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))

    def go(self, path: str) -> Page:
        """Open a page of the broker."""
        answer = self.page.goto(self.base + path)
        assert answer is not None and answer.status == 200
        return self.page


@pytest.fixture
def seen(browser: Browser, broker: Broker) -> Iterator[Seen]:
    """Open a window; at its end, it has asked nobody else, and has complained about nothing."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    made = Seen(context, broker.http_url)
    yield made
    context.close()
    assert made.addresses and all(one.startswith(broker.http_url) for one in made.addresses)
    assert made.complaints == []


def exact(page: Page, selector: str) -> list[float]:
    """Read the exact values of numbers."""
    values = page.eval_on_selector_all(
        selector, "found => found.map(one => Number(one.getAttribute('value')))"
    )
    return list(values)


def test_each_number_is_that_of_the_document_and_of_the_store(seen: Seen, broker: Broker) -> None:
    """At a quiet moment: the overview, all partitions, the log dirs, the groups."""
    summary = document(broker, "summary")
    page = seen.go("")
    known: dict[str, Any] = summary["rates"] | summary["trouble"]
    known |= {
        "topic_count": summary["counts"]["topic_count"],
        "partition_count": summary["counts"]["partition_count"],
        "connection_count": summary["counts"]["connection_count"],
        "group_count": document(broker, "groups")["total"],
    }
    shown = page.eval_on_selector_all(
        "data[data-key]", "all => all.map(one => [one.dataset.key, Number(one.value)])"
    )
    assert {key for key, _ in shown} >= {"bytes_in", "partition_count", "bad_log_dirs"}
    for key, value in shown:
        assert value == pytest.approx(known[key], rel=1e-12), key
    sizes = exact(page, "#log-dirs td[data-label=Records] data")
    assert sizes == [one["size_bytes"] for one in document(broker, "log-dirs")["log_dirs"]]
    listed = document(broker, "partitions?size=1000")["partitions"]
    found: dict[str, tuple[list[float], str]] = {}
    for number in range(1, document(broker, "partitions")["pages"] + 1):
        page = seen.go(f"partitions?page={number}")
        for row in page.query_selector_all("tbody tr"):
            name = row.query_selector("th")
            assert name is not None
            values = [
                float(one.get_attribute("value") or "") for one in row.query_selector_all("data")
            ]
            found[name.inner_text()] = values, row.inner_text()
    assert len(found) == len(listed) == len(broker.store)
    for row in listed:
        values, text = found[f"{shortened(row['topic'])}-{row['partition']}"]
        if row["end"] is None:
            assert values == [] and "OFFLINE" in text
            continue
        log = broker.store.log(row["topic"], row["partition"])
        store = [log.log_start_offset, log.high_watermark, log.log_end_offset, log.size_bytes]
        assert (
            values
            == store
            == [row[key] for key in ("start", "high_watermark", "end", "size_bytes")]
        )
    page = seen.go("group?name=billing")
    assert exact(page, "td[data-label=Lag] data") == [1200]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_scrolls_sideways(browser: Browser, broker: Broker, scheme: Any) -> None:
    """From 320 to 1920 pixels, with the longest names; no text is outside its box."""
    for width in WIDTHS:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page = context.new_page()
        for path in PATHS:
            page.goto(broker.http_url + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, path)
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_labels_and_contrast(browser: Browser, broker: Broker, scheme: Any, width: int) -> None:
    """Axe finds nothing: each control has a label, and text has enough contrast."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    for path in PATHS:
        page.goto(broker.http_url + path)
        result = Axe().run(page)
        assert result.violations_count == 0, f"{path}: {result.generate_report()}"
    context.close()


def test_the_keyboard_is_enough(seen: Seen) -> None:
    """Tab reaches everything, the focus is visible, and a refresh does not take it away."""
    page = seen.go("partitions")
    visited = []
    for _ in range(9):
        page.keyboard.press("Tab")
        place = page.evaluate(
            "[document.activeElement.textContent || document.activeElement.name,"
            " getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert place[1] != "none", place
        visited.append(place[0].strip())
    assert visited[:6] == [
        "Skip to the content", "Overview", "Partitions", "Topics", "Groups", "Pause",
    ]  # fmt: skip
    assert visited[6] == "search" and visited[8] == "Search"
    page.focus("input[name=search]")
    page.keyboard.type("orders-0")
    page.keyboard.press("Enter")
    page.wait_for_url("**search=orders-0**")
    assert page.locator("tbody tr").count() == 1
    page = seen.go("")
    page.focus("a[href='/partitions?show=offline']")
    with page.expect_response(lambda answer: "fragment=1" in answer.url, timeout=20_000):
        pass
    page.wait_for_function("document.querySelector('#live a')")
    assert (
        page.evaluate("document.activeElement.getAttribute('href')") == "/partitions?show=offline"
    )
    page.keyboard.press("Enter")
    page.wait_for_url("**show=offline**")


def test_it_refreshes_itself_until_it_is_paused(seen: Seen, broker: Broker) -> None:
    """A new record is seen without a reload; a pause stops that."""
    page = seen.go("topic?name=live")
    page.evaluate("window.isTheSame = true")
    end = page.locator("td[data-label=End] data").first
    assert end.get_attribute("value") == "1234"
    with KafkaClient(broker.bootstrap_servers) as client:
        client.produce("live", batch_of(b"new"))
        page.wait_for_selector("td[data-label=End] data[value='1235']", timeout=20_000)
        assert page.evaluate("window.isTheSame")
        page.click("#pause")
        assert page.inner_text("#pause") == "Continue"
        asked = len(seen.addresses)
        page.wait_for_timeout(6000)
        assert len(seen.addresses) == asked


def test_it_works_without_scripts(browser: Browser, broker: Broker) -> None:
    """Pages, the search and the links to further pages; nothing that needs a script is shown."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for path in PATHS:
        page.goto(broker.http_url + path)
        assert page.locator("h1").count() == 1
        assert not page.locator("#pause").is_visible()
    page.goto(broker.http_url + "partitions?search=many")
    assert page.locator("tbody tr").count() == 50
    page.click("nav.pager a:has-text('2')")
    assert page.inner_text("tbody th >> nth=0") == "many-50"
    page.fill("input[name=search]", "many-119")
    page.click("button:has-text('Search')")
    assert page.inner_text("tbody th") == "many-119"
    context.close()


def test_hostile_names_do_nothing(seen: Seen) -> None:
    """They are shown as text; no script runs, no picture is fetched (see the fixture)."""
    page = seen.go("groups")
    names = page.locator("tbody th").all_inner_texts()
    assert "<script>alert(1)</script>" in names and page.locator("main img").count() == 0
    assert page.locator("script").count() == 1
    assert "\\u001b[2J\\u202e" in names
    page.click("a:has-text('<script>alert(1)</script>')")
    assert page.inner_text("h1") == "Group <script>alert(1)</script>"


def test_the_policy_forbids_what_is_injected(browser: Browser, broker: Broker) -> None:
    """Even if a text became markup, the browser would not run it."""
    context = browser.new_context()
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda one: said.append(one.text))
    page.goto(broker.http_url)
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.isRun=1\">')"
    )
    page.wait_for_timeout(300)
    assert page.evaluate("window.isRun") is None
    assert any("Content Security Policy" in one for one in said), said
    context.close()


def test_the_documents_open_in_a_browser(seen: Seen) -> None:
    """As plain JSON."""
    page = seen.go("api/v1/summary")
    assert json.loads(page.inner_text("body"))["version"] == 1
