"""The parts of a source's address: `PLACE?key=value&…`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from tracewheel import ConfigError


class Address(NamedTuple):
    """What stands before the question mark, and the options after it."""

    place: str
    options: Mapping[str, str]


def read_address(kind: str, address: str, known: tuple[str, ...]) -> Address:
    """The parts of an address.

    Raises:
        ConfigError: an option is not among `known`, or has no value.
    """
    place, _, query = address.partition("?")
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError as error:
        raise ConfigError(f"{kind}:{address}: write options as ?key=value&key=value") from error
    if unknown := sorted(options.keys() - set(known)):
        raise ConfigError(f"{kind}:{address}: no option '{unknown[0]}'; there are {', '.join(known) or 'none'}")
    return Address(place, options)


def number_of(kind: str, options: Mapping[str, str], name: str, default: float) -> float:
    """An option that is a number.

    Raises:
        ConfigError: it is none, or negative.
    """
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1e6:
        raise ConfigError(f"{kind}: option '{name}' is a number from 0, not {options.get(name)!r}")
    return value
