"""Keep small durable facts about a log dir, for programs that use the store.

    log-dir-facts   {"version", "kind", "directory_id", "generation", "facts": {name: JSON}}

A log has facts, too. A log's facts are in its `partition.metadata`, under the key `facts`: an
object with the same keys `generation` and `facts`. So the facts of a log move with the replica. The
generation is the number of changes so far. The store itself never reads a fact.
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
FACTS_BYTES_MAX = 64 << 10  # the limit for all facts of one log dir, or of one log, as JSON
NAME_CHARACTERS_MAX = 249
DEPTH_MAX = 16


class Noted(NamedTuple):
    """Hold the facts of a log dir or of a log.

    Attributes:
        generation: how often the facts were changed.
        facts: the values by name.
        damage: why the file with the facts is unusable; "" if the file is usable.
    """

    generation: int = 0
    facts: Mapping[str, Any] = {}  # this is replaced as a whole, never changed in place
    damage: str = ""

    def changed(self, changes: Mapping[str, Any]) -> Noted:
        """Return the facts after some changes; a fact that becomes None is removed.

        Raises:
            TypeError, ValueError: a value is not JSON, or all facts together would be too large.
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
        """Return the part of a document that contains the facts."""
        return {"generation": self.generation, "facts": self.facts}


def from_document(document: Mapping[str, Any]) -> Noted:
    """Read the part of a document that `to_document` made. Raises an error of `fields.WRONG`."""
    facts = fields.mapping(document["facts"], "facts")
    if len(_written(facts)) > FACTS_BYTES_MAX:
        raise ValueError(f"the facts have more than {FACTS_BYTES_MAX} bytes")
    generation = fields.number(document["generation"], "the generation of the facts")
    return Noted(generation, {check_name(name): facts[name] for name in facts})


def check_name(name: object) -> str:
    """Check the name of a fact and return it. Raises TypeError or ValueError."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a fact must be str, not {type(name).__name__}")
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise ValueError(f"the name of a fact must have 1 to {NAME_CHARACTERS_MAX} characters")
    return name


def _checked(value: object, name: str, depth: int) -> Any:
    """Copy a JSON value. Raises TypeError or ValueError for any other value."""
    if not depth:
        raise ValueError(f"the fact {name!r} is nested more than {DEPTH_MAX} levels deep")
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
    raise TypeError(
        f"the fact {name!r} has a value of type {type(value).__name__}, which is not JSON"
    )


def _written(facts: Mapping[str, Any]) -> bytes:
    import json

    return json.dumps(facts, separators=(", ", ": "), ensure_ascii=False).encode()


class Facts(MutableMapping[str, Any]):
    """Small facts by name; a change is durable when the call that makes the change returns.

    Values are JSON: numbers, text, true and false, lists, and mappings with text as keys. Setting a
    fact to None removes the fact. All facts of one log dir, or of one log, have at most 64 KiB
    together. Each change replaces and syncs one file, so change several facts with one `update`.
    Threads: changes run one after another. A reader sees all facts as they were at one moment.
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
        """How often the facts were changed, or 0 if the facts were never changed."""
        return self._read().generation

    @property
    def damage(self) -> str:
        """Why the file with the facts is unusable; "" if the file is usable.

        A change of a fact makes the file usable again.
        """
        return self._read().damage

    def __getitem__(self, name: str) -> Any:
        """Return a copy of a fact, or raise KeyError."""
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
        """Change several facts durably; after a crash, either all of them are changed or none.

        Raises:
            TypeError, ValueError: a value is not JSON, or the facts would be too large.
            LogStoreError: the log dir failed, or its disk is full; the facts are unchanged.
        """
        wanted = dict(*changes, **named)
        self._replace(lambda noted: noted.changed(wanted))


class Home(Protocol):
    """The log dir that has the facts."""

    path: str
    read_only: bool
    facts: object  # the `DirFacts` of the log dir, made by the first call of `facts_of`

    @property
    def directory_id(self) -> str:
        """The id of the log dir; a file that contains another id counts as damaged."""

    def check(self) -> None:
        """Raise LogStoreError if the log dir does not work."""

    def failed(self, error: OSError, path: str | None = None) -> LogStoreError:
        """Convert an OSError of the disk into an error of this library."""

    def change_file(self, name: str, write: Callable[[files.Guard], None]) -> None:
        """Replace a small file durably. Raises LogStoreError."""


class DirFacts:
    """The facts of one log dir; an owner reads the file once, a read-only view on every call."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._changing = threading.Lock()
        # `_noted` and `_begun` are changed under `_keeping`, which no thread holds for long.
        self._keeping = threading.Lock()
        self._noted: Noted | None = None
        self._begun = 0  # how many changes of the file were begun

    def read(self) -> Noted:
        """Return the facts. Raises LogStoreError if the disk cannot read them."""
        if (kept := self._noted) is not None:
            return kept
        home, begun, is_quiet = self._home, self._begun, not self._changing.locked()
        home.check()
        try:
            with call(home.path, SYNCING):
                noted = read_facts(home.path, home.directory_id)
        except OSError as error:
            raise home.failed(error, os.path.join(home.path, FACTS_NAME)) from error
        home.check()  # the file may be missing because the disk is not mounted
        if is_quiet and not home.read_only:
            with self._keeping:
                if begun == self._begun:  # if a change began since then, `noted` may be outdated
                    self._noted = noted
        return noted

    def replace(self, change: Callable[[Noted], Noted]) -> None:
        """Change the facts durably. Raises LogStoreError, and the errors that `change` raises."""
        home = self._home
        if home.read_only:
            raise ReadOnlyStoreError(path=home.path)
        with self._changing:
            noted = change(self.read())
            # If Ctrl-C interrupts the change, the next call reads the file again.
            with self._keeping:
                self._begun += 1
                before, self._noted = self._noted, None
            write = partial(write_facts, home.path, home.directory_id, noted)
            try:
                home.change_file(FACTS_NAME, write)
            except LogStoreError:
                self._noted = before
                raise
            self._noted = noted


_making = threading.Lock()


def facts_of(home: Home) -> DirFacts:
    """Return the facts of a log dir; the first call makes the object, which few programs need."""
    with _making:
        if home.facts is None:
            home.facts = DirFacts(home)
        assert isinstance(home.facts, DirFacts)
        return home.facts


def write_facts(
    dir_path: str, directory_id: str, noted: Noted, guard: files.Guard = nullcontext
) -> None:
    """Replace the facts of a log dir durably. Raises OSError."""
    document = {"version": VERSION, "kind": FACTS_NAME, "directory_id": directory_id}
    write_document(os.path.join(dir_path, FACTS_NAME), document | noted.to_document(), guard)


def read_facts(dir_path: str, directory_id: str) -> Noted:
    """Read the facts of a log dir; if the file is unusable, return no facts, with the reason.

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
