"""The model as data: operators, edges, and the immutable DAG they form."""

from simsched.graph.names import Numbered
from simsched.graph.operator import DTYPE_NBYTES, INTENSITIES, Edge, Kernel, Operator
from simsched.graph.opgraph import OpGraph
from simsched.graph.views import Rows

__all__ = ["DTYPE_NBYTES", "INTENSITIES", "Edge", "Kernel", "Numbered", "OpGraph", "Operator", "Rows"]
