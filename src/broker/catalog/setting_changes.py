"""Translate changes of a topic's settings into changes of its logs' configurations."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from broker.catalog.settings import (
    FIXED,
    IGNORED,
    KEYS,
    LIST,
    InvalidSettingError,
    check_together,
    config_of,
    field_of,
    key_of,
    value_of,
)
from logstore import LogConfig

NO_LIMIT = -1  # the store's value for "no limit"; None would mean the store's default


class Operation(enum.IntEnum):
    """The kinds of changes, with Kafka's numbers (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One change of a setting. `text` is the value in Kafka's form, or None for DELETE."""

    key: str
    operation: int
    text: str | None


def altered(changes: Iterable[Change], config: LogConfig, defaults: LogConfig) -> dict[str, object]:
    """Return the new values of a log's settings, in the form that `store.set_config` takes.

    Args:
        config: the present configuration of the log.
        defaults: for DELETE, the new value of the setting is taken from here.

    Raises:
        InvalidSettingError: a setting is unknown or not supported, or its value is not valid.
    """
    fields: dict[str, object] = {}
    for key, operation, text in changes:
        if operation not in Operation.__members__.values():
            raise InvalidSettingError(f"{key}: there is no operation {operation}")
        if key in IGNORED:
            continue
        if operation == Operation.DELETE:
            if key not in FIXED:
                check_known(key, defaults)
                fields[field_of(key)] = getattr(defaults, field_of(key))
        elif text is None:
            raise InvalidSettingError(f"{key} has no value")
        elif operation == Operation.SET:
            check_known(key, defaults, text)
            if key in KEYS:
                fields[field_of(key)] = value_of(key, text.strip())
        else:
            old = str(fields.get(field_of(key), getattr(config, field_of(key), "")))
            fields[field_of(key)] = value_of(key, joined(key, operation, old, text))
    try:
        check_together(config.replace(**fields), map(key_of, fields))
    except InvalidSettingError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidSettingError(str(error)) from error
    return {name: NO_LIMIT if value is None else value for name, value in fields.items()}


def check_known(key: str, defaults: LogConfig, text: str | None = None) -> None:
    """Raise InvalidSettingError if a new topic cannot have this setting with this value."""
    config_of([(key, text)], defaults)


def joined(key: str, operation: int, old: str, text: str, *, is_list: bool = False) -> str:
    """Return the value of a list setting after elements were added or removed.

    Args:
        is_list: whether the setting is a list that may be empty. No setting of a log is a list that
            may be empty.
    """
    if not is_list and (key not in KEYS or KEYS[key].type != LIST):
        raise InvalidSettingError(f"{key} is not a list, so elements cannot be added or removed")
    given = [part.strip() for part in text.split(",")]
    parts = [part for part in old.split(",") if part and part not in given]
    if operation == Operation.APPEND:
        parts += given
    if not parts and not is_list:
        raise InvalidSettingError(f"{key} must not be empty")
    return ",".join(parts)


def replacing(
    settings: Iterable[tuple[str, str | None]], keys: Iterable[str] = KEYS
) -> list[Change]:
    """Return changes that set these settings and reset all other settings (AlterConfigs).

    Args:
        keys: the keys of all settings that a topic can have.
    """
    given = [(key, text) for key, text in settings if text is not None]
    named = {key for key, _ in given}
    changes = [Change(key, Operation.DELETE, None) for key in keys if key not in named]
    return changes + [Change(key, Operation.SET, text) for key, text in given]
