"""The file of schemas is what its script makes; importing the package reads nothing of it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import broker.wire
from broker.wire import messages
from broker.wire.schemas import LAST, NONE, Versions, names, schema_of, versions_of
from support.places import environment

FILE = Path(broker.wire.__file__).with_name("schemas.json")
SCRIPT = Path(__file__).parents[2] / "scripts" / "wire_schemas.py"


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("0+", Versions(0, LAST)),
        ("12+", Versions(12, LAST)),
        ("4", Versions(4, 5)),
        ("4-7", Versions(4, 8)),
        ("none", NONE),
    ],
)
def test_ranges_of_versions(text: str, versions: Versions) -> None:
    """As the schemas write them, all of them inclusive."""
    assert versions_of(text) == versions
    assert versions.first - 1 not in versions and versions.end not in versions
    assert versions == NONE or (versions.first in versions and versions.end - 1 in versions)


def test_importing_reads_no_schema() -> None:
    """Neither the package nor any module in it compiles a message before one is asked for."""
    program = (
        "import broker.wire.fetch, broker.wire.produce, broker.wire.frames as frames;"
        "from broker.wire import codec, messages, schemas;"
        "print([one.cache_info().currsize for one in (schemas._rows, schemas.schema_of,"
        " messages.classes_of, codec.plan_of)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, env=environment(),
    )  # fmt: skip
    assert json.loads(done.stdout) == [0, 0, 0, 0]


def test_messages_have_the_defaults_of_their_schema() -> None:
    """Numbers in any notation, null, booleans, structs; what no default is given for is empty."""
    request = messages.FetchRequest()
    assert (request.max_bytes, request.replica_id, request.cluster_id) == (2**31 - 1, -1, None)
    assert request.replica_state == messages.FetchRequest.ReplicaState(-1, -1)
    assert messages.FetchRequest.FetchPartition().high_watermark == 2**63 - 1
    assert messages.MetadataRequest().allow_auto_topic_creation is True
    assert messages.MetadataRequest().topics == ()
    assert messages.ConsumerGroupHeartbeatResponse().assignment is None
    with pytest.raises(AttributeError, match="no message is named 'Nonsense'"):
        messages.__getattr__("Nonsense")
    with pytest.raises(TypeError):
        messages.MetadataRequest(topic="t")


def test_field_names_are_words_in_snake_case() -> None:
    """Also those that Kafka begins in lower case, or whose name has two capitals in a row."""
    fields = {
        field.name for name in names() for row in schema_of(name).structs.values() for field in row
    }
    assert {"timeout_ms", "is_kraft_controller", "enable2_pc", "isr_nodes"} <= fields
    assert all(name.isidentifier() and name == name.lower() for name in fields)


def script() -> ModuleType:
    """Load the script that makes the file."""
    spec = importlib.util.spec_from_file_location("wire_schemas", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_file_names_its_origin() -> None:
    """The script, the jars and their checksums; the notice of the license is beside it."""
    head = json.loads(FILE.read_text(encoding="utf-8"))
    assert head["generated_by"] == "scripts/wire_schemas.py" and SCRIPT.is_file()
    assert [len(source["sha256"]) for source in head["sources"]] == [64] * 4
    assert "Apache Software Foundation" in FILE.with_name("KAFKA_NOTICE.txt").read_text()
    keys = {row["apiKey"] for row in head["messages"] if "apiKey" in row}
    assert keys == script().KEYS | script().REMOVED_KEYS
    assert FILE.stat().st_size < 100_000


def test_the_script_leaves_out_what_decides_nothing(tmp_path: Path) -> None:
    """Comments, descriptions and other APIs; the same jars give the same bytes."""
    kept = script()
    jars = []
    sources = (("new", kept.KEYS | {71}), ("old", kept.REMOVED_KEYS | {3}), ("records", {1}))
    for name, keys in sources:
        jars.append(tmp_path / f"{name}.jar")
        with zipfile.ZipFile(jars[-1], "w") as jar:
            for key in keys:
                field = '{"name": "F", "type": "int8", "versions": "0+", "about": "x"}'
                jar.writestr(
                    f"common/message/M{key}Request.json",
                    f'// a comment\n{{"apiKey": {key}, "type": "request", "name": "M{key}Request",'
                    f'\n // more\n "validVersions": "0", "flexibleVersions": "none",'
                    f' "fields": [{field}]}}',
                )
    kept.main([*map(str, jars), "--target", str(tmp_path / "schemas.json")])
    text = (tmp_path / "schemas.json").read_text()
    rows = json.loads(text)["messages"]
    assert {row["apiKey"] for row in rows} == kept.KEYS | kept.REMOVED_KEYS
    assert rows[0]["fields"] == [{"name": "F", "type": "int8", "versions": "0+"}]
    assert kept.document(*jars) == text
    with pytest.raises(ValueError, match=r"no schema has the keys \[4, 5, 6, 7\]"):
        kept.document(jars[0], jars[0], jars[2])
