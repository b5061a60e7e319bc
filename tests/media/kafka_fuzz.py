"""Fuzz the decoder of Kafka's batches, guided by coverage; needs atheris (pip group `fuzz`).

    make fuzz                                         30 minutes, in rounds of 60 s
    python tests/media/kafka_fuzz.py --seconds 60     one round

A round is a process of its own: the fuzzer keeps what it saw and grows. An input is the bytes of a
segment; of every second one the checksums are made right first, so that the rows behind them are
reached. Only ValueError and UnsupportedFormatError may come out, and soon.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.kafka_golden import GOLDEN

ROUND_SECONDS = 60
INPUT_BYTES_MAX = 4096
# A slow input, and a hungry one.
TIMEOUT_SECONDS, MEMORY_MB = 10, 1500


def decode(data: bytes) -> None:
    """Walk a segment and decode what is whole in it; with the first bit set, mend its checksums."""
    from crc32c import crc32c

    from logstore.errors import UnsupportedFormatError
    from logstore.format import layouts
    from logstore.format.kafka import record_batch as kafka
    from logstore.format.prefix import walk

    if not data:
        return
    body = bytearray(data[1:])
    if data[0] & 1:
        for span in walk(bytes(body)):
            end = span.position + span.size_bytes
            if span.size_bytes >= kafka.HEADER_BYTES:
                crc = crc32c(bytes(body[span.position + 21 : end]))
                struct.pack_into(">I", body, span.position + 17, crc)
    segment = bytes(body)
    for position in [0, *kafka.candidates(segment, 0)]:
        if layouts.fault(segment, position, None) is None:
            header = layouts.read_header(segment, position)
            try:
                batch = kafka.decode_all(segment, position, header)
                assert len(batch.records()) == header.record_count
            except (ValueError, UnsupportedFormatError):
                continue


def one_round(arguments: list[str]) -> None:
    """Fuzz in this process until the fuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["logstore"]):
        from logstore.format.kafka import record_batch as kafka  # noqa: F401
    atheris.Setup([sys.argv[0], *arguments], decode)
    atheris.Fuzz()


def seed(corpus: Path) -> None:
    """Begin with what Kafka wrote."""
    for path in GOLDEN.rglob("*.log"):
        data = path.read_bytes()[: INPUT_BYTES_MAX - 1]
        (corpus / f"{path.parent.name}-{path.stem}").write_bytes(b"\x01" + data)


def main() -> int:
    """Run rounds from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=1800)
    parser.add_argument("--round", nargs="*", default=None)
    options, rest = parser.parse_known_args()
    if options.round is not None:
        one_round([*options.round, *rest])
        return 0
    with tempfile.TemporaryDirectory() as place:
        corpus = Path(place) / "corpus"
        corpus.mkdir()
        seed(corpus)
        deadline = time.monotonic() + options.seconds
        number = 0
        while time.monotonic() < deadline:
            number += 1
            done = subprocess.run(
                [
                    sys.executable, __file__, "--round", str(corpus),
                    f"-max_total_time={ROUND_SECONDS}", f"-max_len={INPUT_BYTES_MAX}",
                    f"-timeout={TIMEOUT_SECONDS}", f"-rss_limit_mb={MEMORY_MB}",
                    f"-artifact_prefix={tempfile.gettempdir()}/kafka-fuzz-", f"-seed={number}",
                ],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            last = [line for line in done.stderr.splitlines() if line.strip()][-2:]
            print(f"round {number}: {len(list(corpus.iterdir()))} inputs; {' | '.join(last)}")
            if done.returncode:
                print(done.stderr[-4000:])
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
