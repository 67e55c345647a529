"""Several schedulers on one graph, simulated, in a table."""

from simsched.comparison.compare import SETS, compare, row_of, scheduler_set
from simsched.comparison.rows import Row, Sampling
from simsched.comparison.table import Comparison, data_frame, operators_without_load

__all__ = [
    "SETS",
    "Comparison",
    "Row",
    "Sampling",
    "compare",
    "data_frame",
    "operators_without_load",
    "row_of",
    "scheduler_set",
]
