"""A client in Go: franz-go, and its administration package kadm."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.client_programs import CODECS, Served, demand_tool, lines_of

SOURCE = Path(__file__).with_name("go")
ADMIN = """\
create 3 ok
create -1 TOPIC_ALREADY_EXISTS
create with a bad name INVALID_TOPIC_EXCEPTION
create with 3 replicas INVALID_REPLICATION_FACTOR
list 3 UNKNOWN_TOPIC_OR_PARTITION
grow ok UNKNOWN_TOPIC_OR_PARTITION
partitions 5
alter retention.ms ok
alter retention.hours INVALID_CONFIG
described retention.ms 3600000 DYNAMIC_TOPIC_CONFIG
described segment.bytes 1073741824 DEFAULT_CONFIG
delete records 10 OFFSET_OUT_OF_RANGE
offsets 10 30
log dirs: replicas of go-admin 5
commit ok
group Empty
lag 18 ok
delete groups ok GROUP_ID_NOT_FOUND
delete topics ok UNKNOWN_TOPIC_OR_PARTITION
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the client; its modules come from Go's proxy."""
    demand_tool("go", "see https://go.dev/doc/install")
    made = tmp_path_factory.mktemp("go") / "clients"
    lines_of(["go", "build", "-o", made, "."], cwd=SOURCE)
    return made


def test_records_of_each_codec_come_back(program: Path, served: Served) -> None:
    """An idempotent producer, and a reader from the start and from a point in time."""
    produced = lines_of([program, served.address, "produce"])
    assert produced == [f"produced {codec} 500" for codec in CODECS]
    consumed = lines_of([program, served.address, "consume"])
    assert consumed == [f"consumed {codec} {at} 500" for codec in CODECS for at in (0, 123)]


def test_two_members_share_a_topic_and_go_on_after_a_restart(program: Path, served: Served) -> None:
    """The cooperative rebalance takes two partitions away and no more; nothing is read twice."""
    assert lines_of([program, served.address, "group"]) == [
        "shared; the first member gave up 2 of 4",
        "read 1000 distinct 1000",
    ]
    served.restart()
    resumed = lines_of([program, served.address, "resume"])
    assert resumed == ["resumed 500 distinct 500 from 1000"]


def test_kadm_gets_what_kafka_answers(program: Path, served: Served) -> None:
    """Topics, settings, records, groups, and the errors of mistakes."""
    assert lines_of([program, served.address, "admin"]) == ADMIN.splitlines()


def test_transactions(program: Path, served: Served) -> None:
    """Franz-go raises the epoch with each of the six transactions."""
    assert lines_of([program, served.address, "transactions"]) == [
        "epochs 6", "committed map[turn 0:40 turn 2:40 turn 4:40]",
    ]  # fmt: skip
