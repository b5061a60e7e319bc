"""Read the JSON of a znode. The data is not trusted: each value is checked when it is read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from cluster.errors import BadZnodeError

ID_MAX = 2**31 - 1
EPOCH_MAX = 2**63 - 1


class ZnodeDocument:
    """A JSON object whose values are checked when they are read."""

    def __init__(self, data: bytes | None, path: str) -> None:
        """Read the object. Raises BadZnodeError if the data is not a JSON object."""
        self._path = path
        if data is None:
            raise self.error("has no data")
        try:
            values = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self.error(f"is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise self.error("is not a JSON object")
        self._values: dict[str, Any] = values

    def error(self, reason: str) -> BadZnodeError:
        """Make the error for a value that cannot be used."""
        return BadZnodeError(path=self._path, reason=reason)

    def has(self, key: str) -> bool:
        """Report whether a key is present and not null."""
        return self._values.get(key) is not None

    def get(self, key: str) -> Any:
        """Return a value of any type. Raises BadZnodeError if the key is missing."""
        if key not in self._values:
            raise self.error(f"{key} is missing")
        return self._values[key]

    def flag(self, key: str) -> bool:
        """Return a boolean."""
        value = self.get(key)
        if type(value) is not bool:
            raise self.error(f"{key} is {str(value)[:40]}, neither true nor false")
        return value

    def number(self, key: str, smallest: int, largest: int) -> int:
        """Return a whole number in a range."""
        return self._number(self.get(key), key, smallest, largest)

    def text(self, key: str) -> str:
        """Return a text that is not empty."""
        value = self.get(key)
        if not isinstance(value, str) or not value:
            raise self.error(f"{key} is not a text, or is empty")
        return value

    def texts(self, key: str) -> dict[str, str]:
        """Return an object whose values are texts."""
        values = self.mapping(key)
        if not all(isinstance(value, str) for value in values.values()):
            raise self.error(f"{key} has a value that is not a text")
        return dict(values)

    def mapping(self, key: str) -> Mapping[str, Any]:
        """Return an object; its values are not checked."""
        values = self.get(key)
        if not isinstance(values, dict):
            raise self.error(f"{key} is not an object")
        return values

    def _number(self, value: Any, what: str, smallest: int, largest: int) -> int:
        if type(value) is not int or not smallest <= value <= largest:
            shown = str(value)[:40]
            raise self.error(f"{what} is {shown}, not an integer from {smallest} to {largest}")
        return value

    def brokers(self, key: str) -> tuple[int, ...]:
        """Return a list of distinct broker ids."""
        return self.brokers_in(self.get(key), key)

    def brokers_in(self, values: Any, what: str) -> tuple[int, ...]:
        """Check a list of distinct broker ids that was found in the object."""
        if not isinstance(values, list):
            raise self.error(f"{what} is not a list")
        return self._distinct([self._number(value, what, 0, ID_MAX) for value in values], what)

    def _distinct(self, brokers: Iterable[int], key: str) -> tuple[int, ...]:
        found = tuple(brokers)
        if len(set(found)) != len(found):
            raise self.error(f"{key} names a broker twice")
        return found

    def epochs(self, key: str) -> dict[int, int]:
        """Return an object whose keys are broker ids and whose values are epochs."""
        values = self.mapping(key)
        for name in values:
            if not (name.isascii() and name.isdigit() and len(name) <= 10):
                raise self.error(f"{key} has {name[:40]!r} in place of a broker id")
        brokers = [self._number(int(name), key, 0, ID_MAX) for name in values]
        epochs = [self._number(value, key, 0, EPOCH_MAX) for value in values.values()]
        return dict(zip(self._distinct(brokers, key), epochs, strict=True))
