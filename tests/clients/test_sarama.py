"""A client in Go that many programs use: Sarama."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.client_programs import CODECS, Served, demand_tool, lines_of

SOURCE = Path(__file__).with_name("sarama")
NEWEST = "4.1.0"  # Sarama speaks the protocol of the version that its user names
VERSIONS = ["2.8.0", NEWEST]  # the first one is Sarama's default
ADMIN = """\
create 0
again 36
bad name 17
3 replicas 38
grow 0
shrink 37
partitions 5 unknown 3
alter retention.ms 0
alter retention.hours 40
described retention.ms 3600000 Topic
described segment.bytes 1073741824 Default
delete records 0
offsets 10 30
log dirs 2 replicas 5
group true "" Empty
offset 0 -1 ""
offset 1 12 "a note"
delete offset 0
delete group 69
delete 0
delete unknown 3
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the client; its modules come from Go's proxy."""
    demand_tool("go", "see https://go.dev/doc/install")
    made = tmp_path_factory.mktemp("sarama") / "clients"
    lines_of(["go", "build", "-o", made, "."], cwd=SOURCE)
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_each_codec_come_back(program: Path, served: Served, version: str) -> None:
    """An idempotent producer, and a reader from the start and from a point in time."""
    found = lines_of([program, served.address, version, "records"])
    assert found == [f"{codec} 123 500 500" for codec in CODECS]


@pytest.mark.parametrize(("strategy", "kept"), [("range", 0), ("sticky", 0), ("cooperative", 2)])
def test_two_members_share_a_topic(program: Path, served: Served, strategy: str, kept: int) -> None:
    """Only the cooperative rebalance leaves partitions with their member; nothing is read twice."""
    assert lines_of([program, served.address, NEWEST, "group", strategy]) == [
        f"shared; the first member kept {kept} of 4",
        "read 1000 distinct 1000",
    ]


def test_a_group_goes_on_after_a_restart(program: Path, served: Served) -> None:
    """From its commits, in a new process."""
    lines_of([program, served.address, NEWEST, "group", "roundrobin"])
    served.restart()
    resumed = lines_of([program, served.address, NEWEST, "resume", "roundrobin"])
    assert resumed == ["resumed 500 distinct 500 from 1000"]


def test_its_administration_gets_what_kafka_answers(program: Path, served: Served) -> None:
    """Topics, settings, records, log dirs, groups, and the numbers of the errors of mistakes."""
    assert lines_of([program, served.address, NEWEST, "admin"]) == ADMIN.splitlines()
