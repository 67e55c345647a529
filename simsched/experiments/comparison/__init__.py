"""Several schedulers on one graph, simulated, in a table."""

from simsched.experiments.comparison.compare import compare, row_of, scheduler_set
from simsched.experiments.comparison.row import Row, Sampling
from simsched.experiments.comparison.table import Comparison, operators_without_load

__all__ = [
    "Comparison", "Row", "Sampling", "compare", "operators_without_load", "row_of", "scheduler_set",
]  # fmt: skip
