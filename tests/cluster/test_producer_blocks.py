"""Test the blocks of producer ids from the coordination store."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.catalog.producer_ids import BLOCK_IDS, EMBEDDED_IDS, ProducerIds
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import OutcomeUnknownError
from broker.coordination.verbs import Session
from cluster.serve.producer_blocks import PATH, ProducerBlocks, end_of
from logstore import LogConfig, LogStore, LogStoreError
from support.kafka_client import batch_of

Connect = Callable[..., Session]


def test_blocks_follow_one_another(session: Session, other: Session) -> None:
    """This holds for both kinds of store; the znode has Kafka's form."""
    one, two = ProducerBlocks(session, 1), ProducerBlocks(other, 2)
    assert [one.claim(0), two.claim(0), one.claim(0)] == [
        range(BLOCK_IDS), range(BLOCK_IDS, 2 * BLOCK_IDS), range(2 * BLOCK_IDS, 3 * BLOCK_IDS),
    ]  # fmt: skip
    assert json.loads(session.get(PATH).data) == {
        "version": 1, "broker": 1, "block_start": "2000", "block_end": "2999",
    }  # fmt: skip
    assert two.claim(10_500) == range(10_500, 11_500)  # above an id that a log of this broker has


def test_brokers_take_blocks_at_the_same_time(session: Session, connect: Connect) -> None:
    """Each block is given to only one broker."""
    found: list[range] = []

    def take(blocks: ProducerBlocks) -> None:
        for _ in range(20):
            found.append(blocks.claim(0))

    threads = [
        threading.Thread(target=take, args=(ProducerBlocks(connect(), number),))
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.start for one in found) == [number * BLOCK_IDS for number in range(80)]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b'{"version":1}', b'{"block_end":7}', b'{"block_end":"-1"}',
        b'{"block_end":"x"}', b'{"block_end":"' + b"9" * 30 + b'"}', '{"block_end":"²"}'.encode(),
    ],
)  # fmt: skip
def test_a_znode_that_cannot_be_read(session: Session, data: bytes) -> None:
    """No id is given, because any id may be in use; the znode does not change."""
    session.create(PATH, data)
    with pytest.raises(LogStoreError):
        ProducerBlocks(session, 1).claim(0)
    assert session.get(PATH).data == data


def test_the_ids_end(session: Session) -> None:
    """Ids from 2^62 on belong to programs that append without a broker."""
    last = EMBEDDED_IDS - BLOCK_IDS - 1
    session.create(PATH, json.dumps({"block_end": str(last)}).encode())
    assert ProducerBlocks(session, 1).claim(0).stop == EMBEDDED_IDS
    with pytest.raises(LogStoreError):
        ProducerBlocks(session, 1).claim(0)


def test_a_block_whose_answer_was_lost_is_given_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client tries again, and gets an id of a later block."""
    with EmbeddedStore([str(tmp_path)]) as coordination, coordination.connect() as session:
        blocks = ProducerBlocks(session, 1)
        create = session.create

        def lost(*arguments: Any, **named: Any) -> Any:
            create(*arguments, **named)
            raise OutcomeUnknownError(1)

        monkeypatch.setattr(session, "create", lost)
        with pytest.raises(LogStoreError):
            blocks.claim(0)
        assert blocks.claim(0) == range(BLOCK_IDS, 2 * BLOCK_IDS)


def test_ids_are_above_those_of_the_logs(tmp_path: Path) -> None:
    """The store may have been wiped, or a single broker may have joined a cluster."""
    (tmp_path / "coordination").mkdir()
    with (
        EmbeddedStore([str(tmp_path / "coordination")]) as coordination,
        coordination.connect() as session,
        LogStore.open(tmp_path / "logs") as store,
    ):
        log = store.create("t", 0, config=LogConfig(record_format="kafka"))
        log.append_encoded(batch_of(b"x", producer=(123_456, 0, 0)))
        ids = ProducerIds(store, ProducerBlocks(session, 1).claim)
        assert [ids.take(), ids.take()] == [123_457, 123_458]
        assert end_of(session.get(PATH).data) == 123_457 + BLOCK_IDS
        ids.close()
