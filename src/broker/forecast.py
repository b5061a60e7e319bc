"""Report what a start of the broker would do: `logstore broker --check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from broker.config import BrokerConfig
from broker.net.tls import listener_context, peer_context
from broker.secret_files import read_own_password, read_passwords
from broker.server_properties import ServerProperties, dotted_reason
from logstore import LogConfig, LogStoreError, StoreConfig
from logstore.store.admin.client import find_owner
from logstore.store.start.identity import resolve
from logstore.store.start.open_dirs import foresee
from logstore.store.start.roster import Found


class Line(NamedTuple):
    """One line of the forecast: its kind, a name, the value, the default, and the source."""

    kind: str
    name: str
    value: object
    default: object = None
    source: str | None = None


def forecast(
    found: ServerProperties, log_dirs: list[str], source: str, sources: Mapping[str, str]
) -> list[Line]:
    """List what a start of the broker would do.

    If the start or a part of the start would fail, a line of the kind "problem" says why.

    Args:
        found: the settings from the file and the options.
        log_dirs: the log dirs.
        source: where the user gave the log dirs: in the option, the file or the environment.
        sources: where the user gave each field.
    """
    problems = dict.fromkeys([*found.problems, *file_problems(found.config)])  # each once
    lines = [Line("problem", problem, None) for problem in problems]
    lines += _log_dirs(log_dirs, source, found.config)
    lines += _listeners(found.config, sources)
    usual = BrokerConfig()
    for field, value in _flat(found.config):
        default = dict(_flat(usual))[field]
        if value != default and not field.endswith(("listeners", "protocol_map")):
            lines.append(Line("setting", field, value, default, sources.get(field)))
    lines += [Line("unknown", sentence, None) for sentence in found.unknown]
    lines += [Line("ignored", key, None) for key in found.ignored]
    return lines


def _log_dirs(paths: list[str], source: str, config: BrokerConfig) -> Iterator[Line]:
    broker_id = config.store_config.broker_id
    owner = find_owner(paths)
    if owner is not None:
        yield Line("note", f"process {owner.pid} has the store open", None)
    try:
        facts, roll = foresee(resolve(paths), broker_id=broker_id)
    except (LogStoreError, ValueError) as error:
        yield Line("problem", str(error), None, source=source)
        return
    absent = {fact.path for fact in facts if fact.found is Found.ABSENT}
    has_id = not config.zookeeper_connect or broker_id is not None or not roll.is_new_store
    for member in roll.members:
        value = f"belongs to store {member.meta.cluster_id}, broker {member.meta.broker_id}"
        if member.is_new:
            made = "will be created" if member.path in absent else "is empty, and will be formatted"
            owner_text = (
                f"broker {member.meta.broker_id}" if has_id else "an id that ZooKeeper gives"
            )
            value = f"{made} for {owner_text}"
        yield Line("log dir", member.path, value, source=source)
    for refusal in roll.refused:
        reason = refusal.explained(to_reader=False)
        yield Line("problem", f"log dir {refusal.path}: {reason}", None, source=source)
    for missing in sorted({*roll.missing_ids} - {refusal.missing_id for refusal in roll.refused}):
        yield Line(
            "problem",
            f"log dir {missing} belongs to this store, but is not in the list of log dirs",
            None,
            source=source,
        )


def file_problems(config: BrokerConfig) -> list[str]:
    """List each file of certificates or passwords that cannot be used, with the reason."""
    protocols = [config.protocol_of(one.name) for one in config.endpoints]
    checks: list[Callable[[], object]] = []
    if any(one.is_tls for one in protocols):
        checks.append(lambda: listener_context(config))
    if any(one.is_sasl for one in protocols) and "PLAIN" in config.mechanisms:
        checks.append(lambda: read_passwords(config.sasl_users_file, "sasl_users_file"))
    if config.zookeeper_connect:
        peer, own = (
            config.protocol_of(config.inter_broker_name),
            "sasl_inter_broker_credentials_file",
        )
        if peer.is_tls:
            checks.append(lambda: peer_context(config))
        if peer.is_sasl:
            checks.append(lambda: read_own_password(getattr(config, own), own))
    problems = []
    for check in checks:
        try:
            check()
        except ValueError as error:
            problems.append(dotted_reason(str(error)))
    return problems


def _listeners(config: BrokerConfig, sources: Mapping[str, str]) -> Iterator[Line]:
    advertised = {endpoint.name: endpoint for endpoint in config.advertised}
    for endpoint in config.endpoints:
        known = advertised.get(endpoint.name)
        value = f"clients get {known}" if known else "clients get the same address"
        if known is None and endpoint.host in ("", "0.0.0.0", "::"):
            value = "clients get the name of this machine"
        protocol = config.protocol_of(endpoint.name)
        if protocol != endpoint.name:
            value = f"{protocol}; {value}"
        yield Line("listener", str(endpoint), value, source=sources.get("listeners"))


def _flat(config: BrokerConfig) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each setting of the broker, the store and the topics."""
    for one in fields(config):
        value = getattr(config, one.name)
        if isinstance(value, LogConfig | StoreConfig):
            for name, setting in value.to_dict().items():
                if name != "log_config":
                    yield f"{one.name}.{name}", setting
        else:
            yield one.name, value
