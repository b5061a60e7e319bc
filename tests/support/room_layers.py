"""List the rooms of the source in layers; `tests/test_tidy.py` checks their imports."""

from __future__ import annotations

# Each room imports from itself and from rooms above it.
LAYERS = [
    {
        "logstore.arguments",
        "logstore.errors",
        "logstore.units",
        "logstore.config",
        "logstore.config_keys",
        "logstore.names",
    },
    {"logstore.format"},
    {"logstore.disk"},
    {"logstore.log"},
    {"logstore.store"},
    {"logstore.arrow", "logstore.aio", "logstore.metrics"},
    {"logstore.spark"},
    {"logstore.bench"},
    {"logstore.cli"},
    {"logstore"},  # the list of public names
    {"mover"},
    {
        "broker.authorization",
        "broker.config",
        "broker.listener_config",
        "broker.properties",
        "broker.protocols",
        "broker.wire",
    },
    {
        "broker.machines",
        "broker.secret_files",
        "broker.security",
        "broker.groups",
        "broker.quotas",
        "broker.coordination",
        "broker.transactions",
    },
    {"broker.net", "broker.consumer_groups"},
    {"broker.catalog", "broker.mixed_groups"},
    {"broker.coordinator", "broker.hands", "broker.ignored_keys", "broker.server_properties"},
    {"broker.transaction_coordinator"},
    {"broker.requests"},
    {"broker.page"},
    {"broker.forecast", "broker.server"},
    {"broker"},  # the list of public names
    {"broker.metrics"},
    {"broker.cli", "broker.pytest_plugin", "broker.top", "broker.user_command"},
    {"broker.hand_over_command"},
    {"cluster"},
]
