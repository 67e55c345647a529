"""Addresses by content: of graphs, of clusters, and of rows."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import numpy as np

from simsched.experiments.study.grid import RowSpec
from simsched.model import OpGraph, Target
from simsched.model.graph.columns import COSTS, Indices, Ints

FORMAT: Final = "simsched.row 1"
"""Changed whenever equal keys would no longer mean equal rows."""
_KERNELS: Final = (
    "kernel_blocks", "kernel_threads", "kernel_registers", "kernel_shared_memory", "kernel_share", "kernel_efficiency"
)  # fmt: skip
_COLUMNS: Final = (*COSTS, "intensity", "src", "dst", "edge_nbytes", "edge_transfer", "kernel_ptr", *_KERNELS)


def graph_digest(graph: OpGraph) -> str:
    """Return the sha256 of all that a graph holds but its name, in hex.

    Equal graphs have equal digests however they were made. O(V + E).
    """
    digest = sha256(json.dumps(list(graph.names)).encode())
    for name in _COLUMNS:
        column = np.asarray(getattr(graph, name))
        wide = column.astype("<f8" if column.dtype.kind == "f" else "<i8")  # also one of equal rows, stored as one
        digest.update(f"{name}:{len(wide)}:".encode())
        digest.update(wide.tobytes())
    for label in ("kind", "dtype", "block"):
        codes, texts = graph.labels(label)
        words, numbers = _by_appearance(codes, texts)
        digest.update(json.dumps([label, *words]).encode())
        digest.update(numbers.tobytes())
    digest.update(json.dumps(list(_details(graph)), sort_keys=True).encode())
    return digest.hexdigest()


def _by_appearance(codes: Indices, texts: Sequence[str | None]) -> tuple[list[str | None], Ints]:
    """Return the texts that occur, in order of first appearance, and the number of each row's, shape of `codes`."""
    used, first, back = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return [texts[code] for code in used[order].tolist()], rank[back]


def _details(graph: OpGraph) -> Any:
    """Yield what operators have besides their columns, by number: attributes and shapes."""
    for i, (attributes, inputs, output) in sorted(graph._details.items()):
        yield i, dict(attributes), inputs, output


def target_digest(target: Target) -> str:
    """Return the sha256 of a cluster, or of a calibration, in hex."""
    document: dict[str, Any] = target.to_dict()  # type: ignore[union-attr]  # a calibration has it, too
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def row_key(spec: RowSpec, version: str, graph: str | None, cluster: str | None) -> str:
    """Return the address of a row: the sha256 of all that has influence on it, in hex.

    Parameters
    ----------
    version
        Of this library.
    graph, cluster
        Their digests. Where there is none - no graph could be made, or the process died - what the study says
        stands for them.
    """
    content = [
        FORMAT,
        version,
        [spec.root, spec.instance],
        dict(spec.workload) if graph is None else graph,
        dict(spec.cluster) if cluster is None else cluster,
        dict(sorted(spec.simulation.items())),
        spec.choice.scheduler,
        sorted(spec.choice.options),
    ]
    return sha256(json.dumps(content).encode()).hexdigest()
