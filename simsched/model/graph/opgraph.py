"""`OpGraph`: an immutable DAG of operators, stored by columns and checked when made."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from simsched.base.codec import Document
from simsched.base.errors import GraphError
from simsched.base.shown import as_html, frame_of
from simsched.model.graph import structure
from simsched.model.graph.dag import Dag
from simsched.model.graph.operator import Edge, Operator


@dataclass(kw_only=True)
class _File:
    """A model as a directed acyclic graph of operators.

    Parameters
    ----------
    name
        How tables and errors call the graph.
    operators
        The vertices; their order breaks every tie.
    edges
        The tensors between them; parallel edges are allowed.
    """

    name: str = "graph"
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...] = ()


class OpGraph(Dag, Document):
    """A model as a directed acyclic graph of operators.

    Parameters
    ----------
    operators
        The vertices. Their order breaks every tie in the library.
    edges
        The tensors between them; parallel edges are allowed.
    name
        How tables and errors call the graph.

    Raises
    ------
    GraphError
        If there is no operator, a name stands twice, an edge names no operator, or the edges
        form a cycle; the message names the offender.

    Notes
    -----
    Columns are read-only arrays, aligned with `operators`: `flops`, `nbytes`, `weight_nbytes`, `host`,
    `time` and `utilization` (NaN for None), `intensity` (-1 for None, else the index into
    `INTENSITIES`), and with `edges`: `src`, `dst` (operator indices), `edge_nbytes`,
    `edge_transfer` (NaN for None). Kernels of operator i are rows ``kernel_ptr[i]`` to
    ``kernel_ptr[i + 1]`` of the ``kernel_*`` columns. A column that is given as one number is stored
    as one, indices as 32 bits where that is enough. Making a graph is O(V + E),
    or O(V log V + E) if the operators are not given in topological order.

    >>> graph = OpGraph([Operator("a", time=3.0), Operator("b", time=5.0)], [Edge("a", "b")])
    >>> graph.order, graph.depth, graph.width
    (('a', 'b'), 2, 1)
    """

    FORMAT, FILE = "simsched.graph", _File

    @cached_property
    def depth(self) -> int:
        """Operators on the path that has the most of them. O(V + E)."""
        return int(structure.longest_to(self, np.ones(len(self))).max())

    width, blocks = cached_property(structure.width), cached_property(structure.blocks)
    longest_path = structure.longest_path
    _repr_html_ = as_html

    def to_pandas(self) -> Any:
        """Return the operators as a pandas DataFrame, a row each; without pandas MissingDependencyError is raised."""
        return frame_of(self.operators, Operator)

    def to_networkx(self) -> Any:
        """Return a `networkx.MultiDiGraph`; node and edge attributes are the fields of the rows.

        networkx keeps edges by their producer, so `from_networkx` may give them back in another order.
        """
        import networkx as nx

        result: Any = nx.MultiDiGraph(name=self.name)
        for op in self.operators:
            result.add_node(op.name, **{field.name: getattr(op, field.name) for field in fields(Operator)[1:]})
        for edge in self.edges:
            result.add_edge(edge.src, edge.dst, nbytes=edge.nbytes, transfer=edge.transfer)
        return result

    @classmethod
    def from_networkx(cls, graph: Any, name: str | None = None) -> "OpGraph":
        """Make a graph from a networkx digraph whose attributes are fields of the rows."""
        if not graph.is_directed():
            raise GraphError("the networkx graph is not directed; operators need to know which reads from which")
        operators = [
            Operator(name=str(node), **_known(values, Operator, 1, f"node {node!r}"))
            for node, values in graph.nodes(data=True)
        ]
        edges = [
            Edge(str(u), str(v), **_known(values, Edge, 2, f"edge {u} -> {v}"))
            for u, v, values in graph.edges(data=True)
        ]
        return cls(operators, edges, name or str(graph.graph.get("name") or "graph"))


def _known(values: Mapping[str, Any], row: type, skipped: int, subject: str) -> dict[str, Any]:
    """Return attributes of a networkx node or edge, all of which must be fields of a row but the first ones."""
    names = tuple(field.name for field in fields(row))
    unknown = [key for key in values if key not in names[skipped:]]
    if unknown:
        raise GraphError(f"{subject}: unknown attribute {unknown[0]!r}; known are: {', '.join(names[skipped:])}")
    return dict(values)
