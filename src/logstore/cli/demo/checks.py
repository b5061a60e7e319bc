"""Compare every record of a log with its flight.

The log of an airport begins with the airport's flights from the first load. The next records are
the flights that the second load appended before it was killed. So the record at offset `n` must be
flight `n`, or, in the second load, flight `n` minus the number of flights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from logstore import Log
from logstore.cli.demo.flights import Flights


class Checked(NamedTuple):
    """Hold the result of checking one log; every field after the first three should be 0."""

    records: int
    first_load: int
    second_load: int
    lost: int
    wrong: int


def check_log(log: Log, flights: Flights, acknowledged_end: int) -> Checked:
    """Read a whole log and compare each record: offset, timestamp, key and value.

    Args:
        log: the log of one airport.
        flights: the flights of the airport, which were appended to the log twice.
        acknowledged_end: all records below this offset were acknowledged.

    """
    count = len(flights.values)
    expected_times = np.array(flights.timestamps, np.int64)
    records = wrong = 0
    expected_offset = 0
    for batch in log.read_batches(0):
        offsets = batch.offsets
        if (
            expected_offset != int(offsets[0])
            or int(offsets[-1]) - int(offsets[0]) != len(offsets) - 1
        ):
            wrong += 1
        expected_offset = int(offsets[-1]) + 1
        places = offsets % count
        wrong += int((expected_times[places] != batch.timestamps).sum())
        for place, key, value in zip(
            places.tolist(), list(batch.keys), list(batch.values), strict=True
        ):
            if value != flights.values[place] or key != flights.keys[place]:
                wrong += 1
        records += batch.count
    return Checked(
        records=records,
        first_load=min(records, count),
        second_load=max(records - count, 0),
        lost=max(acknowledged_end - records, 0),
        wrong=wrong,
    )
