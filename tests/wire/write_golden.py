"""Write kafka_messages.json: two made-up messages of each version, encoded by Kafka's own classes.

    PYTHONPATH=src:tests python tests/wire/write_golden.py DIRECTORY

The directory holds the jars of kafka-clients 4.1.0 and 3.9.1, kafka-group-coordinator 4.1.0,
kafka-transaction-coordinator 4.1.0, slf4j-api, and Jackson's databind, core and annotations. Each
message goes to Java as JSON, through the converters of Kafka's jars.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from broker.wire import messages
from broker.wire.schemas import Field, schema_of
from support.wire_samples import VERSIONS, sample

HERE = Path(__file__).parent
SEEDS = 2


def golden_sample(name: str, version: int, seed: int) -> Any:
    """Make up the message whose bytes are in the file."""
    return sample(name, version, random.Random(f"{name} {version} {seed}"))


def as_json(name: str, struct: str, version: int, message: Any) -> dict[str, Any]:
    """Give a message in the form that Kafka's converters read; defaults of tagged fields go."""
    schema = schema_of(name)
    defaults = messages.classes_of(name)[struct]()

    def one(field: Field, value: Any) -> Any:
        if field.type in schema.structs and value is not None:
            return as_json(name, field.type, version, value)
        if field.type == "uuid":
            return base64.urlsafe_b64encode(value).decode().rstrip("=")
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value

    return {
        field.json_name: [one(field, element) for element in value]
        if field.is_array and value is not None
        else one(field, value)
        for field, value, default in zip(schema.structs[struct], message, defaults, strict=True)
        if version in field.versions and not (version in field.tagged and value == default)
    }


def main(directory: str) -> None:
    """Run Java once for each version of kafka-clients; keys 4 to 7 are in the older one only."""
    lines = []
    for name, version in VERSIONS:
        for seed in range(SEEDS):
            message = golden_sample(name, version, seed)
            lines.append(f"{name} {version} {json.dumps(as_json(name, name, version, message))}")
    found: dict[str, dict[str, list[str]]] = {}
    answers = []
    for kafka in ("4.1.0", "3.9.1"):
        jars = [str(jar) for jar in Path(directory).glob("*.jar") if "kafka" not in jar.name]
        jars.append(f"{directory}/kafka-clients-{kafka}.jar")
        jars.append(f"{directory}/kafka-group-coordinator-4.1.0.jar")
        jars.append(f"{directory}/kafka-transaction-coordinator-4.1.0.jar")
        command = ["java", "-cp", ":".join(jars), str(HERE / "Golden.java")]
        done = subprocess.run(
            command, input="\n".join(lines), capture_output=True, text=True, check=True
        )
        answers.append(done.stdout.splitlines())
    for newest, older in zip(*answers, strict=True):
        name, version, data = (older if newest.endswith(" -") else newest).split(" ")
        assert data != "-", f"Kafka does not encode {name} of version {version}"
        found.setdefault(name, {}).setdefault(version, []).append(data)
    text = json.dumps(found, separators=(",", ":")).replace("},", "},\n")
    (HERE / "kafka_messages.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
