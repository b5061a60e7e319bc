"""Keep a partition's properties: topic id, generation, configuration, log start offset and move.

The properties are in one small checksummed file in the partition's directory (docs/FORMAT.md,
section 7). A move of the replica copies this file. During a move, the file has more keys:

    live dir moving which move builds a copy of this replica, and in which log dir move_rates the
                   rates at which a later process continues that move superseded_by (intent) which
                   copy will soon replace this copy
    .move dir      move_id, source_directory_id, move_state, source_end_offset
    .delete dir    superseded_by   which copy has replaced this copy

If a user deletes the partition, its `.delete` dir has the key `deletion` instead.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any, NamedTuple, Self

from logstore.config import LogConfig
from logstore.disk import files
from logstore.disk.documents import checkpoint, fields
from logstore.disk.documents.generations import Generation
from logstore.errors import CorruptCheckpointError

FILE_NAME = "partition.metadata"
# True if offsets may be missing, because the log was compacted in Kafka's layout.
SPARSE_OFFSETS = "sparse_offsets"
VERSION = 1
# The recovery point after the last truncation.
# A higher recovery point in an older checkpoint is wrong.
RECOVERY_POINT_LIMIT = "recovery_point_limit"

# The high watermark, but at most the recovery point.
# Only a replicated log has this key.
# Except after a move or damage to a file, the log dir's checkpoint has a newer high watermark.
HIGH_WATERMARK = "high_watermark"

# Small facts about this log, kept for programs that use the store (see `log_facts`).
FACTS = "facts"

# The generation of the log dir when the log was created or last truncated.
# It is a list of three values: directory id, number, step.
# The other log dirs record recovery points of this log dir's logs.
# If a recovery point was recorded before this generation, it does not show the end of the log.
END_LOWERED_AT = "end_lowered_at"
# True if `partition.metadata` was lost, and the log has the default configuration because of that.
# The key is removed when a user sets a configuration.
CONFIG_LOST = "config_lost"
# How far the log is compacted: [end offset, time in ms or null]; see `Cleaned`.
CLEANED = "cleaned"

DELETION = "deletion"
DELETED_BY_USER = "user"
# The rates at which a later process continues the running move.
# This key exists only together with `moving`.
MOVE_RATES = "move_rates"
NUMBERS = frozenset({"generation", "source_end_offset"})
COPYING, CAUGHT_UP = "copying", "caught_up"


class Moving(NamedTuple):
    """The running move; the live copy stores it durably before the `.move` dir is created."""

    move_id: str  # the id in 32 hex digits
    target_directory_id: str


class Superseded(NamedTuple):
    """The copy that will soon replace this copy."""

    generation: int
    directory_id: str


class Cleaned(NamedTuple):
    """How far a log was compacted.

    Attributes:
        end_offset: records before this offset are compacted. The offset may be outside the range of
            the log.
        horizon_ms: the earliest time at which a tombstone or a marker can be removed; None if the
            log has no tombstone or marker to remove.
    """

    end_offset: int = 0
    horizon_ms: int | None = None

    def until(self, offset: int) -> Cleaned:
        """Return how far a log is compacted after a truncation to an offset."""
        return self._replace(end_offset=min(self.end_offset, offset))


class MoveRecord(NamedTuple):
    """The record of a move, which is kept in the `.move` directory that the move builds."""

    move_id: str
    source_directory_id: str
    move_state: str  # COPYING or CAUGHT_UP
    source_end_offset: int  # the source's log end offset when this record was written

    @property
    def is_caught_up(self) -> bool:
        """Check whether the copy had caught up with its source when this record was written."""
        return self.move_state == CAUGHT_UP


def read_mark(kind: type[Any], document: dict[str, Any]) -> Any:
    """Make a Moving, Superseded or MoveRecord from the keys of a document.

    Raises:
        KeyError, ValueError: a key is missing, or its value is of another type or out of range.
    """
    values = {name: document[name] for name in kind._fields}
    for name, value in values.items():
        if name in NUMBERS:
            fields.number(value, name, fields.OFFSET_MAX)
        else:
            fields.text(value, name)
    return kind(**values)


class PartitionMetadata(NamedTuple):
    """The contents of `partition.metadata`.

    Attributes:
        topic_id: 16 random bytes. If a topic is deleted and created again under the same name, the
            new topic has another id.
        generation: grows by one with each move of the replica. The first generation is the number
            of log dirs that were out of service when the replica was created.
        moving: the running move; None if no move runs.
        extra: all other keys of the document; see `move_record` and `superseded_by`.
    """

    topic: str
    partition: int
    topic_id: bytes
    generation: int = 0
    log_start_offset: int = 0
    config: LogConfig = LogConfig()
    moving: Moving | None = None
    extra: dict[str, Any] = {}  # noqa: RUF012 - never changed in place

    @property
    def move_record(self) -> MoveRecord | None:
        """The record of the move that builds this `.move` dir, or None in another directory."""
        if "move_id" not in self.extra:
            return None
        record: MoveRecord = read_mark(MoveRecord, self.extra)
        return record

    @property
    def superseded_by(self) -> Superseded | None:
        """The copy that will soon replace this copy; None if there is no such copy."""
        document = self.extra.get("superseded_by")
        if document is None:
            return None
        superseded: Superseded = read_mark(Superseded, document)
        return superseded

    @property
    def cleaned(self) -> Cleaned:
        """How far the log was compacted."""
        return Cleaned(*self.extra.get(CLEANED, ()))

    def with_cleaned(self, cleaned: Cleaned) -> Self:
        """Return the metadata of a log that is compacted as far as `cleaned` says."""
        extra = {key: value for key, value in self.extra.items() if key != CLEANED}
        if cleaned != Cleaned():
            extra[CLEANED] = list(cleaned)
        return self._replace(extra=extra)

    @property
    def is_deleted_by_user(self) -> bool:
        """Check whether a user deleted the partition."""
        return self.extra.get(DELETION) == DELETED_BY_USER

    def with_deletion(self) -> Self:
        """Return the metadata of a partition that a user deleted."""
        return self._replace(extra=self.extra | {DELETION: DELETED_BY_USER})

    def without_deletion(self) -> Self:
        """Return the metadata without the key `deletion`, which marks a deletion by a user."""
        return self._replace(extra={k: v for k, v in self.extra.items() if k != DELETION})

    def with_move_record(self, record: MoveRecord | None) -> Self:
        """Return the metadata with another move record; None removes the record."""
        left_out = {*MoveRecord._fields, MOVE_RATES}
        extra = {key: value for key, value in self.extra.items() if key not in left_out}
        return self._replace(extra=extra | (record._asdict() if record else {}))

    def with_superseded_by(self, superseded: Superseded | None) -> Self:
        """Return the metadata with another `superseded_by`; None removes this key."""
        extra = {key: value for key, value in self.extra.items() if key != "superseded_by"}
        if superseded is not None:
            extra["superseded_by"] = superseded._asdict()
        return self._replace(extra=extra)

    def with_lowered_end(self, directory_id: str, at: Generation | None) -> Self:
        """Return the metadata of a log that was created or cut in generation `at` of its dir."""
        if at is None:
            return self
        return self._replace(
            extra=self.extra | {END_LOWERED_AT: [directory_id, at.number, at.step]}
        )

    def is_lowered_since(self, directory_id: str, seen: Generation) -> bool:
        """Check whether the log was created or truncated in generation `seen`, or later."""
        whose, *at = self.extra.get(END_LOWERED_AT, ("", -1, -1))
        return bool(whose == directory_id and at >= [seen.number, seen.step])

    def with_high_watermark(self, offset: int) -> Self:
        """Return the metadata with another high watermark.

        All records before this offset are replicated and flushed.
        """
        return self._replace(extra=self.extra | {HIGH_WATERMARK: offset})

    def with_config(self, config: LogConfig) -> Self:
        """Return the metadata with a configuration that a user has set, without `config_lost`."""
        extra = {key: value for key, value in self.extra.items() if key != CONFIG_LOST}
        return self._replace(config=config, extra=extra)

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of the file."""
        return {
            **self.extra,
            "version": VERSION,
            "kind": FILE_NAME,
            "topic": self.topic,
            "partition": self.partition,
            "topic_id": self.topic_id.hex(),
            "generation": self.generation,
            "log_start_offset": self.log_start_offset,
            "config": self.config.to_dict(),
            "moving": self.moving._asdict() if self.moving else None,
        }

    def write(self, directory: str, guard: files.Guard = nullcontext) -> None:
        """Replace the file durably. Raises OSError, and any error that `guard` raises."""
        checkpoint.write_document(os.path.join(directory, FILE_NAME), self.to_document(), guard)

    @classmethod
    def read(cls, directory: str) -> PartitionMetadata | None:
        """Read the file; return None if the file does not exist.

        Raises:
            CorruptCheckpointError: the file is damaged, or a field is missing or wrong.
            UnsupportedFormatError: a later version wrote the file.
        """
        path = os.path.join(directory, FILE_NAME)
        document = checkpoint.read_document(path)
        if document is None:
            return None
        try:
            return _checked(cls, document)
        except fields.WRONG as error:
            raise CorruptCheckpointError(
                path=path, position=0, reason=f"a field is missing or wrong: {error}"
            ) from error


# The keys of a document that have a field of their own; `extra` keeps the others.
KNOWN = frozenset({*PartitionMetadata._fields, "version", "kind"})


def _checked(kind: type[PartitionMetadata], document: dict[str, Any]) -> PartitionMetadata:
    """Make metadata from a document; a wrong field raises one of the errors in `fields.WRONG`."""
    fields.check_kind(document, FILE_NAME)
    moving = document.get("moving")
    metadata = kind(
        *fields.partition_key(document["topic"], document["partition"]),
        fields.id_bytes(document["topic_id"], "topic_id"),
        fields.number(document["generation"], "generation"),
        fields.number(document["log_start_offset"], "log_start_offset", fields.OFFSET_MAX),
        LogConfig.from_dict(fields.mapping(document["config"], "config")),
        read_mark(Moving, fields.mapping(moving, "moving")) if moving is not None else None,
        {key: value for key, value in document.items() if key not in KNOWN},
    )
    _ = metadata.move_record, metadata.superseded_by  # both raise an error if a key is missing
    extra = metadata.extra
    for name in (RECOVERY_POINT_LIMIT, HIGH_WATERMARK):
        fields.number(extra.get(name, 0), name, fields.OFFSET_MAX)
    if FACTS in extra:
        from logstore.disk.documents.facts import from_document

        from_document(fields.mapping(extra[FACTS], FACTS))
    for name in (SPARSE_OFFSETS, CONFIG_LOST):
        fields.flag(extra.get(name, False), name)
    if CLEANED in extra:
        ((end_offset, horizon_ms),) = fields.rows([extra[CLEANED]], CLEANED, 2)
        fields.number(end_offset, CLEANED, fields.OFFSET_MAX)
        if horizon_ms is not None:
            fields.number(horizon_ms, CLEANED, fields.OFFSET_MAX)
    if END_LOWERED_AT in extra:
        ((directory_id, number, step),) = fields.rows([extra[END_LOWERED_AT]], END_LOWERED_AT, 3)
        fields.id_bytes(directory_id, END_LOWERED_AT)
        fields.number(number, END_LOWERED_AT)
        fields.number(step, END_LOWERED_AT)
    return metadata


def without_recovery_point_limit(metadata: PartitionMetadata) -> PartitionMetadata:
    """After a later checkpoint was written, return metadata without `recovery_point_limit`."""
    extra = {key: value for key, value in metadata.extra.items() if key != RECOVERY_POINT_LIMIT}
    return metadata._replace(extra=extra)
