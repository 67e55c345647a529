"""Several schedulers on one graph, simulated, in a table."""

from simsched.comparison.compare import SETS, compare, row_of, scheduler_set
from simsched.comparison.rows import Draws, Row, Sampling
from simsched.comparison.table import Comparison, operators_without_load
from simsched.shown import data_frame

__all__ = [
    "SETS",
    "Comparison",
    "Draws",
    "Row",
    "Sampling",
    "compare",
    "data_frame",
    "operators_without_load",
    "row_of",
    "scheduler_set",
]
