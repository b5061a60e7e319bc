"""Read, check and change the settings of a topic.

The coordination store keeps the settings as texts.

The store has only the settings that were set for the topic. For other settings, each broker uses
its defaults. Five of the keys are not settings of a log. The rules of the cluster use three of
these keys (`cluster/control/topic_rules`), and the other two list the throttled replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.catalog.admin.topic_admin import SettingRow
from broker.catalog.setting_changes import Change, Operation, joined
from broker.catalog.settings import (
    BOOLEAN,
    DEFAULT_SOURCE,
    FIXED,
    INT,
    KEYS,
    LIST,
    STATIC_SOURCE,
    TOPIC_SOURCE,
    InvalidSettingError,
    Synonym,
    check_together,
    config_of,
    synonyms_of,
    text_of,
)
from broker.config import BrokerConfig
from cluster.control.topic_rules import FLUSH_BEFORE_ACK, MIN_ISR, UNCLEAN, default_min_isr
from cluster.throttle.throttled_replicas import FOLLOWER_REPLICAS, LEADER_REPLICAS, parse
from logstore import LogConfig

LIST_KEYS = {LEADER_REPLICAS: LIST, FOLLOWER_REPLICAS: LIST}
RULE_KEYS = {MIN_ISR: INT, UNCLEAN: BOOLEAN, FLUSH_BEFORE_ACK: BOOLEAN, **LIST_KEYS}
ALL_KEYS = (*KEYS, *RULE_KEYS)
MIN_ISR_MAX = 2**31 - 1
DIGITS_MAX = 10

Texts = Mapping[str, str]


class Usable(NamedTuple):
    """The settings of a topic that a broker uses, and the settings that it cannot use.

    Attributes:
        config: the configuration for the logs of the topic.
        faults: for the key of each setting that the broker cannot use, the reason. A setting that
            the broker cannot use was written by another program.
    """

    config: LogConfig
    faults: dict[str, str]


def usable(texts: Texts, defaults: LogConfig) -> Usable:
    """Read the settings of a topic.

    If a setting cannot be used, report a fault, and use the default.
    """
    own = [(key, text) for key, text in sorted(texts.items()) if key not in RULE_KEYS]
    faults: dict[str, str] = {}
    try:
        return Usable(config_of(own, defaults), faults)
    except InvalidSettingError:
        config = defaults
    for key, text in own:
        try:
            config = config_of([(key, text)], config)
        except InvalidSettingError as error:
            faults[key] = str(error)
    return Usable(config, faults)


def accepted(settings: Iterable[tuple[str, str | None]], defaults: LogConfig) -> dict[str, str]:
    """Check the settings that a client gives a new topic, and return the settings to store.

    Raises:
        InvalidSettingError: a setting is unknown or not supported, or its value is not valid.
    """
    changes = [
        Change(key, Operation.DELETE if text is None else Operation.SET, text)
        for key, text in settings
    ]
    return changed({}, changes, defaults)


def changed(texts: Texts, changes: Iterable[Change], defaults: LogConfig) -> dict[str, str]:
    """Return the settings of a topic after some changes.

    Args:
        texts: the present settings. If one setting cannot be used, a change of the others is still
            accepted.
        defaults: the values of the settings that are not set.

    Raises:
        InvalidSettingError: a setting is unknown or not supported, or its value is not valid.
    """
    result = dict(texts)
    touched = set()
    for key, operation, text in changes:
        if operation not in Operation.__members__.values():
            raise InvalidSettingError(f"{key}: there is no operation {operation}")
        touched.add(key)
        if operation == Operation.DELETE:
            _check(key, None, defaults)
            result.pop(key, None)
            continue
        if text is None:
            raise InvalidSettingError(f"{key} has no value")
        if operation != Operation.SET:
            usual = text_of(key, defaults) if key in KEYS else ""
            text = joined(key, operation, result.get(key, usual), text, is_list=key in LIST_KEYS)
        _check(key, text, defaults)
        if key in KEYS or key in RULE_KEYS:
            result[key] = text.strip()
    # Two settings may contradict each other, so check the changed settings with the others.
    others = {key: text for key, text in result.items() if key not in touched}
    config = config_of(
        [(key, text) for key, text in result.items() if key in KEYS and key in touched],
        usable(others, defaults).config,
    )
    check_together(config, touched)
    return result


def _check(key: str, text: str | None, defaults: LogConfig) -> None:
    """Raise InvalidSettingError if a topic cannot have a setting; None means no value."""
    if key not in RULE_KEYS:
        config_of([(key, text)], defaults)
    elif text is not None and (fault := _fault_of_rule(key, text.strip())):
        raise InvalidSettingError(fault)


def _fault_of_rule(key: str, text: str) -> str:
    """Return the fault of a setting that the rules of the cluster use; "" if it has none."""
    if RULE_KEYS[key] == LIST:
        try:
            parse(text)
        except ValueError as error:
            return f"{key}: {error}"
        return ""
    if RULE_KEYS[key] == BOOLEAN:
        is_good = text.lower() in ("true", "false")
        return "" if is_good else f"{key}={text[:40]!r} is neither true nor false"
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    is_good = is_number and 1 <= int(text) <= MIN_ISR_MAX
    return "" if is_good else f"{key}={text[:40]!r} is not a number from 1 to {MIN_ISR_MAX}"


def min_isr_of(config: BrokerConfig, factor: int) -> str:
    """Return the `min.insync.replicas` of a new topic: the broker's setting, or a majority."""
    return str(config.min_insync_replicas or default_min_isr(factor))


def rows_of(texts: Texts, config: BrokerConfig, factor: int) -> list[SettingRow]:
    """Describe the settings of a topic.

    Args:
        factor: the number of replicas. The default of `min.insync.replicas` depends on this number.
    """
    defaults = config.log_config
    own, faults = usable(texts, defaults)
    rows = []
    for key, setting in KEYS.items():
        synonyms = synonyms_of(key, own, defaults)
        topics = Synonym(key, text_of(key, own), TOPIC_SOURCE)
        if key in texts and key not in faults and topics not in synonyms:
            synonyms.insert(0, topics)
        rows.append(SettingRow(key, text_of(key, own), setting.type, synonyms, False))
    for key, (kind, text) in FIXED.items():
        if key not in RULE_KEYS:
            rows.append(SettingRow(key, text, kind, synonyms_of(key, own, defaults), True))
    usual = {MIN_ISR: str(default_min_isr(factor)), UNCLEAN: "false", FLUSH_BEFORE_ACK: "false"}
    usual |= dict.fromkeys(LIST_KEYS, "")
    for key, kind in RULE_KEYS.items():
        # As in Kafka, a list of throttled replicas has no default: brokers have no such list.
        synonyms = [] if key in LIST_KEYS else [Synonym(key, usual[key], DEFAULT_SOURCE)]
        if key == MIN_ISR and config.min_insync_replicas:
            synonyms.insert(0, Synonym(key, min_isr_of(config, factor), STATIC_SOURCE))
        if key in texts and not _fault_of_rule(key, texts[key]):
            synonyms.insert(0, Synonym(key, texts[key], TOPIC_SOURCE))
        text = synonyms[0].text if synonyms else usual[key]
        rows.append(SettingRow(key, text, kind, synonyms, False))
    return rows
