"""HIOS in machine code: what `simsched.schedulers.hios` lays out is worked on here."""

import numpy as np

from simsched.machine_columns import longs
from simsched.schedulers.hios.layout import (
    BEGIN,
    DONE,
    INSERT,
    PATHS,
    PHASE,
    RECORD,
    RELEASED_PATHS,
    RELEASED_RECORD,
    STATUS,
)
from simsched.schedulers.hios.paths import map_paths
from simsched.schedulers.hios.placement import insert_all
from simsched.schedulers.hios.recorder import record
from simsched.schedulers.hios.released import map_edges
from simsched.schedulers.hios.windows import begin_windows, next_window


def run(table: int) -> None:
    """Do what the table asks for, see `layout`."""
    t = longs(table)
    phase = t[PHASE]
    if phase == PATHS:
        t[STATUS] = map_paths(t)
    elif phase == RELEASED_PATHS:
        t[STATUS] = map_edges(t)
    elif phase in (RECORD, RELEASED_RECORD):
        t[STATUS] = record(t)
    elif phase == INSERT:
        insert_all(t, np.inf)
        t[STATUS] = DONE
    elif phase == BEGIN:
        t[STATUS] = begin_windows(t)
    else:
        t[STATUS] = next_window(t)
