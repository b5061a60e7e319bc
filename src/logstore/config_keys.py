"""Check the values of configuration keys, and keep the checked settings unchanged."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from logstore.units import parse_duration, parse_size


class Key:
    """Check the value of one key, and return it in its stored form."""

    __slots__ = ("choices", "high", "is_optional", "is_size", "low")

    def __init__(
        self,
        low: int = 0,
        high: int = 0,
        *,
        is_size: bool = False,
        is_optional: bool = False,
        choices: tuple[str, ...] = (),
    ) -> None:
        self.low, self.high, self.choices = low, high, choices
        self.is_size, self.is_optional = is_size, is_optional

    def check(self, name: str, value: object) -> float | str | None:
        """Return the value in its stored form; None means "no limit"."""
        if self.choices:
            return self._choose(name, value)
        if value is None and self.is_optional:
            return None
        if self.is_size and isinstance(value, str):
            value = parse_size(value, name)
        is_duration = name.endswith("_ms")
        if is_duration and isinstance(value, str):
            value = parse_duration(value, name)
        if isinstance(value, bool) or not isinstance(value, int):
            form = "a size" if self.is_size else "a whole number"
            form += " of ms or text like '7d'" * is_duration
            raise TypeError(f"{name} must be {form}{' or None' * self.is_optional}, not {value!r}")
        if value == -1 and self.is_optional:
            return None
        if not self.low <= value <= self.high:
            raise ValueError(f"{name}={value} is not in {self.low}..{self.high}")
        return value

    def _choose(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            raise TypeError(f"{name} must be text, not {value!r}")
        if value not in self.choices:
            known = ", ".join(map(repr, self.choices))
            raise ValueError(f"{name}={value!r} is unknown; choose from {known}")
        return value


class Switch(Key):
    """Check a value that must be True or False."""

    def check(self, name: str, value: object) -> bool:
        """Return the value."""
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, not {value!r}")
        return value


class Ratio(Key):
    """Check a value that must be a number from 0 to 1."""

    def check(self, name: str, value: object) -> float:
        """Return the value as a float; text like "0.5" is accepted, too."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError(f"{name} must be a number from 0 to 1, not {value!r}")
        try:
            ratio = float(value)
        except (ValueError, OverflowError):
            ratio = -1.0
        if not 0 <= ratio <= 1:  # this condition refuses NaN, too
            raise ValueError(f"{name}={value} is not a number in 0..1")
        return ratio


class Config:
    """Hold checked settings that never change.

    The repr shows only settings that differ from defaults.
    """

    __slots__: tuple[str, ...] = ()
    _keys: ClassVar[dict[str, Key]]

    def _take(self, settings: dict[str, Any], unknown: dict[str, Any]) -> None:
        for name in unknown:
            raise TypeError(_unknown_key(type(self).__name__, name, list(self.__slots__)))
        for name in self.__slots__:
            value = settings[name]
            key = self._keys.get(name)
            object.__setattr__(self, name, key.check(name, value) if key else value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot change; use replace() to copy it")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot change; use replace() to copy it")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self) -> str:
        default = type(self)()
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name in self.__slots__
            if getattr(self, name) != getattr(default, name)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), {name: getattr(self, name) for name in self.__slots__})

    def replace(self, **settings: Any) -> Self:
        """Make a copy with some settings changed."""
        return type(self)(**{name: getattr(self, name) for name in self.__slots__} | settings)


def _rebuild(kind: type[Config], settings: dict[str, Any]) -> Config:
    return kind(**settings)


def _unknown_key(kind: str, name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    # The most likely mistake is Kafka's own spelling, such as segment.bytes for segment_bytes.
    wanted = name.lower().replace(".", "_").replace("-", "_")
    for nearest in get_close_matches(wanted, known, n=1):
        return f"{kind} has no key {name!r}; did you mean {nearest!r}?"
    return f"{kind} has no key {name!r}; it has {', '.join(known)}"
