"""Judge what a killed process left of its log dirs, by names and bytes on the disk.

`Ledger` follows what the victim said. The store is opened and closed, and then the directories are
read by the document alone: every acknowledged record stands once, in order, in exactly one live
directory; what was deleted is nowhere; no half-done change is left lying about.
"""

from __future__ import annotations

from pathlib import Path

from kill.dir_victims import ORDERS, OTHER, QUIET, RECORDS, value
from logstore import LogStore, TopicPartition
from support.keepers import wait_for_keepers
from support.reader import read_partition

Numbers = list[int]


class Ledger:
    """What the victim acknowledged, and what it was about to do when it ended.

    Attributes:
        records: the numbers of the records of each partition that is there.
        deleted: partitions that must not be there.
        done: the changes of log dirs that were acknowledged, in order.
        pending: the operation that was announced and not acknowledged.
    """

    def __init__(self) -> None:
        self.records: dict[TopicPartition, Numbers] = {
            ORDERS: list(range(RECORDS)),
            OTHER: list(range(RECORDS)),
        }
        self.done: list[str] = []
        self.pending = ""

    def hear(self, line: str) -> None:
        """Take in one line of the pipe."""
        kind, _, operation = line.partition(" ")
        if kind == "I":
            assert not self.pending
            self.pending = operation
            return
        assert operation == self.pending
        self.pending = ""
        word, name, *rest = operation.split()
        if word == "append":
            self.records[key_of(name)].append(int(rest[0]))
        elif word == "create":
            self.records[key_of(name)] = []
        elif word == "delete":
            del self.records[key_of(name)]
        else:
            self.done.append(operation)

    def may_have(self, key: TopicPartition) -> list[Numbers | None]:
        """Give what a partition may hold; None stands for "it is not there"."""
        known = self.records.get(key)
        word, name, *rest = (self.pending or "nothing -").split()
        if name != str(key) or word in ("promote", "nothing"):
            return [known]
        if word == "append":
            assert known is not None
            return [known, [*known, int(rest[0])]]
        return [known, [] if word == "create" else None]

    def may_be_cordoned(self) -> set[bool]:
        """Tell whether log dir a may be cordoned, and whether it may not be."""
        told = [word == "cordon" for word, name in map(str.split, self.done) if name == "a"]
        states = {(told or [False])[-1]}
        return (
            states | {self.pending == "cordon a"} if self.pending.endswith("cordon a") else states
        )

    def log_dirs(self, root: Path, nth: int) -> list[Path]:
        """Give the log dirs that an operator has in the configuration after the kill."""
        names = ["a", "b", "z"]
        if "remove b" in self.done or (self.pending == "remove b" and nth % 2):
            names.remove("b")
        if "add c" in self.done or (self.pending == "add c" and nth % 2):
            names.append("c")
        return [root / name for name in names]


def key_of(name: str) -> TopicPartition:
    """Read a partition's name."""
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))


def judge(root: Path, ledger: Ledger, nth: int) -> None:
    """Open what is left twice, and look at the disks in between; raises AssertionError."""
    dirs = ledger.log_dirs(root, nth)
    settle(dirs, ledger)
    found = on_disk(root)
    for key in {*found, *ledger.records, ORDERS, OTHER}:
        assert found.get(key) in ledger.may_have(key), (key, found.get(key), ledger.pending)
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        assert set(store) == set(found)
        assert not store.host.replicas.offline and not store.host.replicas.incomplete
        for key, numbers in found.items():
            log = store.log(*key)
            assert [record.value for record in log] == [value(key, n) for n in numbers]
            assert log.append(b"goes on", durable=True) == len(numbers)
        is_cordoned = store.host.replicas.dir_of(str(root / "a")).is_cordoned
        assert is_cordoned in ledger.may_be_cordoned()


def settle(dirs: list[Path], ledger: Ledger) -> None:
    """Open the store as its operator would, let it tidy up, and close it."""
    with LogStore.open(dirs, config=QUIET, admin_socket=False, format_new=True) as store:
        replicas = store.host.replicas
        assert not replicas.offline, replicas.offline
        if any(word in ledger.pending for word in ("promote", "remove", "reopen")):
            for key in list(replicas.incomplete):
                store.promote(*key)
        assert not replicas.incomplete, replicas.incomplete
        wait_for_keepers(store)


def on_disk(root: Path) -> dict[TopicPartition, Numbers]:
    """Read every partition of all disks by the document alone."""
    found: dict[TopicPartition, Numbers] = {}
    for path in sorted(root.glob("?/*-*")):
        if not path.is_dir() or path.suffix == ".stray":
            continue
        assert not path.suffix, f"{path} is left over"
        key = key_of(path.name)
        assert key not in found, f"{path} is a second live copy"
        records = [record for batch in read_partition(path) for record in batch.records]
        assert [record.offset for record in records] == list(range(len(records)))
        numbers = [int((record.value or b"").split()[1]) for record in records]
        assert [record.value for record in records] == [value(key, n) for n in numbers]
        found[key] = numbers
    return found
