"""What is too long for each run of the tests (`make secure-broker`): many connections, and a grade.

`LOGSTORE_SSLYZE` is a Python that has sslyze, which does not fit beside the libraries of the tests.
"""

from __future__ import annotations

import os
import re
import resource
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support.kafka_client import KafkaClient, batch_of
from support.secured import (
    Certificates,
    SecureClient,
    address_of,
    client_context,
    secure_broker,
)

IDLE = int(os.environ.get("LOGSTORE_IDLE_TLS", "2000"))
SSLYZE = os.environ.get("LOGSTORE_SSLYZE", "")


def resident_bytes() -> int:
    """Return the memory of this process."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


def test_idle_connections_cost_no_thread(tmp_path: Path) -> None:
    """Thousands log in over TLS and wait; each still answers, and another client is fast."""
    certificates = Certificates.make(tmp_path)
    context = client_context(certificates)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(files[1], 4 * IDLE), files[1]))
    with secure_broker(certificates) as broker, KafkaClient(address_of(broker, "PLAINTEXT")) as one:
        one.create("busy")
        before, began = resident_bytes(), time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            clients = list(pool.map(lambda _: connected(broker, context), range(IDLE)))
        seconds = time.monotonic() - began
        grown = resident_bytes() - before
        time_limit = time.monotonic() + 30.0
        while broker.counts()["thread_count"] > 16:  # threads end after 10 s without work
            assert time.monotonic() < time_limit
        assert broker.counts()["connection_count"] == IDLE + 1
        began = time.monotonic()
        for _ in range(100):
            assert not one.produce("busy", batch_of(b"x")).error_code
        print(
            f"{IDLE} logins with SCRAM over TLS in {seconds:.1f} s; {grown / IDLE / 1024:.0f} KiB "
            f"each, of client and broker together; 100 requests beside them took "
            f"{time.monotonic() - began:.2f} s"
        )
        for client in clients:
            assert client.call("ApiVersions", 0).error_code == 0
            client.socket.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, files)


def connected(broker: object, context: ssl.SSLContext) -> SecureClient:
    client = SecureClient(address_of(broker, "SASL_SSL"), context)  # type: ignore[arg-type]
    assert not client.log_in("SCRAM-SHA-256").error_code
    return client


def test_tls_meets_mozillas_intermediate_configuration(tmp_path: Path) -> None:
    """Versions, ciphers and known attacks: the scanner complains of two things only.

    The test's own certificate marks a part as critical that should not be. And Python before 3.15
    cannot choose several curves, so two strong ones are offered that Mozilla leaves out.
    """
    assert SSLYZE, "set LOGSTORE_SSLYZE, or run make secure-broker"
    certificates = Certificates.make(tmp_path)
    now = datetime.now(UTC)
    made = certificates.made.issue_cert(
        "127.0.0.1", not_before=now - timedelta(days=1), not_after=now + timedelta(days=90)
    )
    own = tmp_path / "short.pem"
    own.write_bytes(made.private_key_and_cert_chain_pem.bytes())
    own.chmod(0o600)
    with secure_broker(certificates, ssl_keystore_location=str(own)) as broker:
        done = subprocess.run(
            [SSLYZE, "-m", "sslyze", "--mozilla_config=intermediate", "--certinfo_ca_file",
             certificates.authority, address_of(broker, "SSL")],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    _, _, judgement = done.stdout.partition("COMPLIANCE AGAINST TLS CONFIGURATION")
    print(judgement)
    complaints = dict(re.findall(r"^ *\* (\w+): (.*)$", judgement, re.MULTILINE))
    assert "127.0.0.1" in judgement, done.stdout + done.stderr
    assert complaints.keys() <= {"certificate_path_validation", "tls_curves"}
    curves = set(re.findall(r"'(\w+)'", complaints.get("tls_curves", "")))
    assert curves <= {"X448", "secp521r1"}
