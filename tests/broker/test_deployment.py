"""The unit of systemd, the container file and their configuration fit one another, and run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.config import BrokerConfig
from broker.properties import parse_properties
from broker.server_properties import ServerProperties, server_properties
from logstore.cli.app import app

REPOSITORY = Path(__file__).parents[2]
PLACE = REPOSITORY / "docs" / "broker"
CONFIG = "/etc/logstore/server.properties"
INSTRUCTIONS = {
    "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "RUN", "STOPSIGNAL", "USER", "VOLUME",
}  # fmt: skip


def unit() -> dict[str, str]:
    """Read the keys of the unit."""
    lines = (PLACE / "logstore-broker.service").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("=") for line in lines if re.match("[A-Z]", line)]
    assert all(equals for _, equals, _ in pairs)
    return {key: value for key, _, value in pairs}


def container() -> list[tuple[str, str]]:
    """Read the instructions of the container file."""
    text = (PLACE / "Containerfile").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def configuration() -> ServerProperties:
    """Read the configuration, which has no problem and no key too many."""
    found = server_properties(parse_properties((PLACE / "server.properties").read_bytes()))
    assert (found.problems, found.unknown, found.ignored) == ((), (), ())
    return found


def starts(command: list[str], tmp_path: Path) -> None:
    """Check that the program accepts the command, with log dirs that may be made here."""
    assert command[0].rpartition("/")[2] == "logstore" and CONFIG in command
    file = str(PLACE / "server.properties")
    given = [file if word == CONFIG else word for word in command[1:]]
    done = CliRunner().invoke(app, [*given, "--check", "--log-dirs", str(tmp_path / "logs")])
    assert done.exit_code == 0, done.output


def test_the_unit_starts_the_broker(tmp_path: Path) -> None:
    """As a user without rights, with descriptors for as many connections as the broker allows."""
    keys = unit()
    starts(shlex.split(keys["ExecStart"]), tmp_path)
    assert keys["Type"] == "notify" and keys["User"] == "logstore"
    assert keys["Environment"] == f"XDG_RUNTIME_DIR=/run/{keys['RuntimeDirectory']}"
    assert int(keys["LimitNOFILE"]) > 2 * BrokerConfig.max_connections
    assert int(keys["TasksMax"]) > 2 * BrokerConfig.max_worker_threads


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """Where it is installed; the program is replaced by one that exists."""
    tool = shutil.which("systemd-analyze")
    text = (PLACE / "logstore-broker.service").read_text(encoding="utf-8")
    program = unit()["ExecStart"].split()[0]
    path = tmp_path / "logstore-broker.service"
    path.write_text(text.replace(f"ExecStart={program}", f"ExecStart={sys.executable}"))
    if tool is not None:
        done = subprocess.run([tool, "verify", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and str(path.name) not in done.stderr, done.stderr


def test_the_container_runs_the_broker(tmp_path: Path) -> None:
    """Not as root, with a volume for each log dir, and the ports of the listeners."""
    steps = container()
    assert {name for name, _ in steps} <= INSTRUCTIONS
    last = dict(steps)
    starts(json.loads(last["ENTRYPOINT"]), tmp_path)
    found = configuration()
    assert json.loads(last["VOLUME"]) == list(found.log_dirs)
    assert last["ENV"] == f"LOGSTORE_LOG_DIRS={','.join(found.log_dirs)}"
    assert last["EXPOSE"].split() == [str(one.port) for one in found.config.endpoints]
    assert int(last["USER"]) > 0 and f"--uid {last['USER']} " in last["RUN"]
    assert all(path in last["RUN"] for path in found.log_dirs)
    assert last["STOPSIGNAL"] == "SIGTERM"
    for name, text in steps:
        if name == "COPY" and not text.startswith("--from"):
            for source in text.split()[:-1]:
                assert (REPOSITORY / source).exists(), source


def test_each_listener_has_an_address_for_its_clients() -> None:
    """The name of the container for its network, that of the host for others."""
    config = configuration().config
    assert {one.name for one in config.advertised} == {one.name for one in config.endpoints}


@pytest.mark.parametrize("name", ["Containerfile", "logstore-broker.service", "server.properties"])
def test_the_document_names_each_file(name: str) -> None:
    """With a link."""
    assert f"(broker/{name})" in (REPOSITORY / "docs" / "BROKER.md").read_text(encoding="utf-8")
