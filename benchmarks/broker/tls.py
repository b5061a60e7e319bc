"""How much does TLS cost a broker? The same bare client produces and fetches with and without it.

    python -m benchmarks.broker.tls [MEGABYTES]

The broker is a process of its own. The rounds with and without TLS alternate, so that other load on
the machine meets both. The CPU time is that of the broker alone.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from support.kafka_client import batch_of
from support.places import environment
from support.secured import Certificates, SecureClient, client_context

ROUNDS = 5
MB = 1_000_000
BATCHES = {"16 KiB": 16 << 10, "1 MB": 950_000}
FETCH_BYTES = 8 << 20
LINE = re.compile(r"at (\w+)://([\d.]+:\d+)")


class Client(SecureClient):
    """A client that reads large answers into one buffer."""

    def read(self, size: int) -> bytes:
        """Read some bytes."""
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self.socket.recv_into(view)
            assert count
            view = view[count:]
        return data  # type: ignore[return-value]


class Cost(NamedTuple):
    """The rate of one round, and the CPU time of the broker for it."""

    mb_per_second: float
    cpu_seconds_per_gb: float


@contextmanager
def broker(directory: Path, certificates: Certificates) -> Iterator[tuple[int, dict[str, str]]]:
    """Run a broker; give its process and the address of each listener."""
    file = directory / "server.properties"
    file.write_text(
        f"log.dirs={directory / 'logs'}\nlisteners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0\n"
        f"ssl.keystore.location={certificates.server}\n"
    )
    command = [sys.executable, "-m", "logstore.cli", "broker", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(), text=True) as child:
        assert child.stdout is not None
        found = [LINE.search(child.stdout.readline()) for _ in range(2)]
        try:
            yield child.pid, {match[1]: match[2] for match in found if match is not None}
        finally:
            child.terminate()


def cpu_seconds(pid: int) -> float:
    """Give the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def produce(client: Client, topic: str, batch_bytes: int, size_bytes: int) -> int:
    """Append batches one after another; returns how many bytes."""
    batch, done = batch_of(os.urandom(batch_bytes)), 0
    while done < size_bytes:
        assert not client.produce(topic, batch).error_code
        done += len(batch)
    return done


def fetch(client: Client, topic: str, size_bytes: int) -> int:
    """Read as many bytes, from the beginning again and again; returns how many."""
    done = 0
    while done < size_bytes:
        row = client.fetch(topic, 0, max_bytes=FETCH_BYTES, partition_max_bytes=FETCH_BYTES)
        done += len(row.records)
    return done


def measured(pid: int, work: object, *args: object) -> Cost:
    """Do some work, and give its cost."""
    assert callable(work)
    cpu, began = cpu_seconds(pid), time.monotonic()
    done = work(*args)
    seconds = time.monotonic() - began
    return Cost(done / MB / seconds, (cpu_seconds(pid) - cpu) / (done / 1e9))


def main() -> None:
    """Print the medians of all rounds."""
    size_bytes = int(sys.argv[1] if len(sys.argv) > 1 else 200) * MB
    costs: dict[tuple[str, str], list[Cost]] = {}
    with tempfile.TemporaryDirectory() as root:
        certificates = Certificates.make(Path(root))
        context = client_context(certificates)
        with broker(Path(root), certificates) as (pid, addresses):
            clients = {
                "PLAINTEXT": Client(addresses["PLAINTEXT"]),
                "SSL": Client(addresses["SSL"], context),
            }
            for name in BATCHES:
                clients["PLAINTEXT"].create(name.replace(" ", "-"))
            for _ in range(ROUNDS):
                for protocol, client in clients.items():
                    for name, batch_bytes in BATCHES.items():
                        part = size_bytes // (10 if batch_bytes < MB // 10 else 1)
                        topic = name.replace(" ", "-")
                        cost = measured(pid, produce, client, topic, batch_bytes, part)
                        costs.setdefault((f"produce, batches of {name}", protocol), []).append(cost)
                    cost = measured(pid, fetch, client, "1-MB", size_bytes)
                    costs.setdefault(("fetch", protocol), []).append(cost)
            for client in clients.values():
                client.socket.close()
    for (what, protocol), rounds in costs.items():
        rate, cpu = (statistics.median(values) for values in zip(*rounds, strict=True))
        print(f"{what:28} {protocol:10} {rate:8.0f} MB/s {cpu:6.2f} s of CPU time for each GB")


if __name__ == "__main__":
    main()
