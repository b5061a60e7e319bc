"""Keep small durable facts for the layers above the store: what they must remember of a log dir.

    log-dir-facts   {"version", "kind", "directory_id", "generation", "facts": {name: JSON}}

The facts of one log are the value of the key `facts` of its `partition.metadata`, with the same
`generation` and `facts` in it, so they travel with every move of the replica. The generation counts
the changes. The store itself never reads a fact.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple, Protocol

from logstore.disk import files
from logstore.disk.calls import SYNCING, call
from logstore.disk.documents import fields
from logstore.disk.documents.checkpoint import VERSION, read_document, write_document
from logstore.errors import (
    CorruptCheckpointError,
    LogStoreError,
    ReadOnlyStoreError,
    UnsupportedFormatError,
)

FACTS_NAME = "log-dir-facts"
FACTS_BYTES_MAX = 64 << 10  # of all facts of a log dir, or of a log, as JSON
NAME_CHARACTERS_MAX = 249
DEPTH_MAX = 16


class Noted(NamedTuple):
    """Facts, how often they were changed, and why the file with them could not be used, or ""."""

    generation: int = 0
    facts: Mapping[str, Any] = {}  # never changed in place
    damage: str = ""

    def changed(self, changes: Mapping[str, Any]) -> Noted:
        """Give the facts after some changes; None removes a fact.

        Raises:
            TypeError, ValueError: a change is no JSON, or all facts together would be too large.
        """
        facts = dict(self.facts)
        for name, value in changes.items():
            check_name(name)
            if value is None:
                facts.pop(name, None)
            else:
                facts[name] = _checked(value, name, DEPTH_MAX)
        if len(_written(facts)) > FACTS_BYTES_MAX:
            raise ValueError(f"the facts would have more than {FACTS_BYTES_MAX} bytes as JSON")
        return Noted(self.generation + 1, facts)

    def to_document(self) -> dict[str, Any]:
        """Give the part of a document that holds the facts."""
        return {"generation": self.generation, "facts": self.facts}


def from_document(document: Mapping[str, Any]) -> Noted:
    """Read what `Noted.to_document` gave; raises one of `fields.WRONG`."""
    facts = fields.mapping(document["facts"], "facts")
    if len(_written(facts)) > FACTS_BYTES_MAX:
        raise ValueError(f"the facts have more than {FACTS_BYTES_MAX} bytes")
    generation = fields.number(document["generation"], "the generation of the facts")
    return Noted(generation, {check_name(name): facts[name] for name in facts})


def check_name(name: object) -> str:
    """Give the name of a fact; raises TypeError or ValueError."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a fact must be str, not {type(name).__name__}")
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise ValueError(f"the name of a fact has 1 to {NAME_CHARACTERS_MAX} characters")
    return name


def _checked(value: object, name: str, depth: int) -> Any:
    """Copy a value of JSON; raises TypeError or ValueError for anything else."""
    if not depth:
        raise ValueError(f"the fact {name!r} is nested more than {DEPTH_MAX} deep")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the fact {name!r} has a key of type {type(key).__name__}")
        return {key: _checked(cell, name, depth - 1) for key, cell in value.items()}
    if isinstance(value, list | tuple):
        return [_checked(cell, name, depth - 1) for cell in value]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        if abs(value) > fields.OFFSET_MAX:
            raise ValueError(f"the fact {name!r} has a number beyond 2^62: {value}")
        return int(value)
    if isinstance(value, float):
        if value - value != 0:
            raise ValueError(f"the fact {name!r} has {value}, which is not JSON")
        return float(value)
    raise TypeError(f"the fact {name!r} has a value of type {type(value).__name__}, not JSON")


def _written(facts: Mapping[str, Any]) -> bytes:
    import json

    return json.dumps(facts, separators=(", ", ": "), ensure_ascii=False).encode()


class Facts(MutableMapping[str, Any]):
    """Small facts, by name, that are on the disk when a change returns.

    Values are JSON: numbers, text, true and false, lists, and mappings of text; None removes a
    fact. All facts of one log dir, or of one log, have at most 64 KiB. Each change replaces one
    file with a sync, so change several facts by one `update`. Threads: changes exclude one another;
    a reader gets the facts of one moment.
    """

    def __init__(
        self, read: Callable[[], Noted], replace: Callable[[Callable[[Noted], Noted]], None]
    ) -> None:
        self._read = read
        self._replace = replace

    def __repr__(self) -> str:
        noted = self._read()
        return f"<Facts {dict(noted.facts)}, generation {noted.generation}>"

    @property
    def generation(self) -> int:
        """How often the facts were changed; 0 if there never was one."""
        return self._read().generation

    @property
    def damage(self) -> str:
        """Why the file with the facts could not be used, until the next change; otherwise ""."""
        return self._read().damage

    def __getitem__(self, name: str) -> Any:
        """Give a copy of a fact; raises KeyError."""
        return deepcopy(self._read().facts[name])

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._read().facts))

    def __len__(self) -> int:
        return len(self._read().facts)

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        def without(noted: Noted) -> Noted:
            if name not in noted.facts:
                raise KeyError(name)
            return noted.changed({name: None})

        self._replace(without)

    def update(self, *changes: Any, **named: Any) -> None:
        """Change several facts at once, durably; all of them or, after a crash, none.

        Raises:
            TypeError, ValueError: a value is no JSON, or the facts would be too large.
            LogStoreError: the log dir failed, or is full; the old facts hold.
        """
        wanted = dict(*changes, **named)
        self._replace(lambda noted: noted.changed(wanted))


class Home(Protocol):
    """The log dir whose facts are kept."""

    path: str
    read_only: bool
    facts: object  # its `DirFacts`, once they are asked for

    @property
    def directory_id(self) -> str:
        """Its id; a file of another log dir counts as damaged."""

    def check(self) -> None:
        """Raise LogStoreError if it does not serve."""

    def failed(self, error: OSError, path: str | None = None) -> LogStoreError:
        """Convert an error of its disk."""

    def change_file(self, name: str, write: Callable[[files.Guard], None]) -> None:
        """Replace a small file durably; raises LogStoreError."""


class DirFacts:
    """The facts of one log dir; the owner reads the file at the first use, a reader each time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._changing = threading.Lock()
        self._noted: Noted | None = None

    def read(self) -> Noted:
        """Give the facts; raises LogStoreError if the disk cannot give them."""
        if self._noted is not None:
            return self._noted
        home = self._home
        home.check()
        try:
            with call(home.path, SYNCING):
                noted = read_facts(home.path, home.directory_id)
        except OSError as error:
            raise home.failed(error, os.path.join(home.path, FACTS_NAME)) from error
        home.check()  # an empty mount point has no file either
        if not home.read_only:
            self._noted = noted
        return noted

    def replace(self, change: Callable[[Noted], Noted]) -> None:
        """Change the facts durably; raises what `change` raises, and LogStoreError."""
        home = self._home
        if home.read_only:
            raise ReadOnlyStoreError(path=home.path)
        with self._changing:
            noted = change(self.read())
            before, self._noted = self._noted, None  # after an interrupt the file is read again
            write = partial(write_facts, home.path, home.directory_id, noted)
            try:
                home.change_file(FACTS_NAME, write)
            except LogStoreError:
                self._noted = before
                raise
            self._noted = noted


_making = threading.Lock()


def facts_of(home: Home) -> DirFacts:
    """Give the facts of a log dir; made at the first use, since few programs need them."""
    with _making:
        if home.facts is None:
            home.facts = DirFacts(home)
        assert isinstance(home.facts, DirFacts)
        return home.facts


def write_facts(
    dir_path: str, directory_id: str, noted: Noted, guard: files.Guard = nullcontext
) -> None:
    """Replace the facts of a log dir durably; raises OSError."""
    document = {"version": VERSION, "kind": FACTS_NAME, "directory_id": directory_id}
    write_document(os.path.join(dir_path, FACTS_NAME), document | noted.to_document(), guard)


def read_facts(dir_path: str, directory_id: str) -> Noted:
    """Read the facts of a log dir; if the file cannot be used, there are none, and it says why.

    Raises:
        OSError: the disk failed.
    """
    try:
        document = read_document(os.path.join(dir_path, FACTS_NAME))
        if document is None:
            return Noted()
        fields.check_kind(document, FACTS_NAME, directory_id)
        return from_document(document)
    except (CorruptCheckpointError, UnsupportedFormatError, PermissionError) as error:
        return Noted(damage=str(error))
    except fields.WRONG as error:
        return Noted(damage=fields.told(error))
