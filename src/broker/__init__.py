"""Serve a store to Kafka's clients.

    from broker import Broker

    with Broker.start(["/disk1/logs", "/disk2/logs"]) as broker:
        print(broker.bootstrap_servers)

The package needs the extra `broker`. For tests, `Broker.start()` without log dirs serves a
temporary directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config import BrokerConfig

if TYPE_CHECKING:
    from broker.server import Broker

__all__ = ["Broker", "BrokerConfig"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import the class `Broker` when it is first used (PEP 562)."""
        if name != "Broker":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from broker.server import Broker

        return globals().setdefault(name, Broker)
