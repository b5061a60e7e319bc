"""`verify` and `repair`: damage found, reported, mended."""

from __future__ import annotations

import json
import os

from logstore.format.columnar.record_batch import HEADER_BYTES
from support.command_line import Run, damage, segment_path


def test_a_sound_store(run: Run, orders: list[str]) -> None:
    """Nothing wrong: exit code 0, and a line says how much was read."""
    result = run("verify")
    assert result.exit_code == 0
    assert "1 partition verified, no problems" in result.stderr
    assert json.loads(run("verify", "--format", "json").stdout) == []


def test_regression_what_a_repair_left_is_counted_as_offsets(run: Run, orders: list[str]) -> None:
    """A column RECORDS counted the offsets of lost records; the records that are there are five."""
    damage(segment_path(orders), HEADER_BYTES + 12)
    heading, row = run("verify").stdout.splitlines()
    assert "OFFSETS LOST" in heading and "RECORDS" not in heading
    assert run("repair", "orders", "0").exit_code == 0
    heading, row = run("topics").stdout.splitlines()
    assert heading.split()[2] == "OFFSETS" and row.split()[2] == "10"
    (facts,) = json.loads(run("topics", "--format", "json").stdout)
    assert facts["offsets"] == 10 and "records" not in facts
    assert len(run("cat", "orders", "0").stdout.splitlines()) == 5


def test_damage_is_a_table_row(run: Run, orders: list[str]) -> None:
    """Damage is named by file and position; exit code 1."""
    damage(segment_path(orders), HEADER_BYTES + 12)
    result = run("verify")
    assert result.exit_code == 1
    heading, row = result.stdout.splitlines()
    assert heading.split()[:3] == ["TOPIC", "PARTITION", "WHERE"]
    assert row.split()[:3] == ["orders", "0", segment_path(orders)]
    rows = json.loads(run("verify", "orders", "0", "--format", "json").stdout)
    assert rows[0]["position"] == 0 and "checksum" in rows[0]["reason"]
    read = run("cat", "orders", "0")
    assert (read.exit_code, "`repair`" in read.stderr) == (1, True)


def test_verify_what_is_not_there(run: Run, orders: list[str]) -> None:
    """An unknown topic is a failure."""
    assert run("verify", "nothing").exit_code == 1
    assert run("verify", "orders", "7").exit_code == 1


def test_an_offline_dir_is_a_problem(run: Run, orders: list[str]) -> None:
    """A log dir that is gone is reported, not passed over."""
    os.rename(orders[1], orders[1] + ".gone")
    result = run("verify", "--format", "json")
    assert result.exit_code == 1
    assert any(row["path"] == orders[1] for row in json.loads(result.stdout))


def test_repair_takes_the_damage_out(run: Run, orders: list[str]) -> None:
    """After a repair the rest is readable, the bytes taken out are kept, and verify is content."""
    path = segment_path(orders)
    damage(path, HEADER_BYTES + 12)
    result = run("repair", "orders", "0", "--format", "json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["lost"] == [[0, 5]]
    assert len(facts["quarantined"]) == 1
    assert run("verify").exit_code == 0
    lines = run("cat", "orders", "0", "--offset", "5").output.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["5", "6", "7", "8", "9"]
    assert any(name.endswith(".quarantine") for name in os.listdir(os.path.dirname(path)))


def test_repair_of_a_sound_partition(run: Run, orders: list[str]) -> None:
    """There is nothing to repair, and nothing changes."""
    result = run("repair", "orders", "0")
    assert result.exit_code == 0
    assert "0 offsets are lost" in result.stdout
    assert run("cat", "orders", "0").output.count("\n") == 10
