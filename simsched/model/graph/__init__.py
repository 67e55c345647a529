"""The model as data: operators, edges, and the immutable DAG they form."""

from simsched.model.graph.collective import ALGORITHMS, Collective
from simsched.model.graph.groups import Meeting
from simsched.model.graph.operator import DTYPE_NBYTES, FAMILIES, INTENSITIES, UNKNOWN, Edge, Kernel, Operator, Work
from simsched.model.graph.opgraph import OpGraph
from simsched.model.graph.views import Numbered, RowsView

__all__ = [
    "ALGORITHMS",
    "DTYPE_NBYTES",
    "FAMILIES",
    "INTENSITIES",
    "UNKNOWN",
    "Collective",
    "Edge",
    "Kernel",
    "Meeting",
    "Numbered",
    "OpGraph",
    "Operator",
    "RowsView",
    "Work",
]
