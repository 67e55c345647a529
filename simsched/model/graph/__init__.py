"""The model as data: operators, edges, and the immutable DAG they form."""

from simsched.model.graph.operator import DTYPE_NBYTES, FAMILIES, INTENSITIES, UNKNOWN, Edge, Kernel, Operator, Work
from simsched.model.graph.opgraph import OpGraph
from simsched.model.graph.views import Numbered, Rows

__all__ = [
    "DTYPE_NBYTES",
    "FAMILIES",
    "INTENSITIES",
    "UNKNOWN",
    "Edge",
    "Kernel",
    "Numbered",
    "OpGraph",
    "Operator",
    "Rows",
    "Work",
]
