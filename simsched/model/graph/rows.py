"""Rows of an `OpGraph` made from its columns, one at a time."""

from typing import TYPE_CHECKING

from simsched.model.graph.columns import optional
from simsched.model.graph.operator import INTENSITIES, Edge, Kernel, Operator

if TYPE_CHECKING:
    from simsched.model.graph.opgraph import OpGraph


def operator_of(graph: "OpGraph", i: int) -> Operator:
    """Return operator number `i`."""
    attributes, input_shapes, output_shape = graph._details.get(i, ({}, (), None))
    code = int(graph.intensity[i])
    return Operator(
        name=graph.names[i],
        kind=graph.label("kind", i) or "op",
        flops=float(graph.flops[i]),
        nbytes=float(graph.nbytes[i]),
        weight_nbytes=float(graph.weight_nbytes[i]),
        time=optional(graph.time[i]),
        kernels=tuple(
            Kernel(
                int(graph.kernel_blocks[k]),
                int(graph.kernel_threads[k]),
                int(graph.kernel_registers[k]),
                int(graph.kernel_shared_memory[k]),
                float(graph.kernel_share[k]),
                float(graph.kernel_efficiency[k]),
            )
            for k in range(graph.kernel_ptr[i], graph.kernel_ptr[i + 1])
        ),
        utilization=optional(graph.utilization[i]),
        intensity=None if code < 0 else INTENSITIES[code],
        dtype=graph.label("dtype", i) or "fp32",
        attributes=attributes,
        input_shapes=input_shapes,
        output_shape=output_shape,
        block=graph.label("block", i),
        host=float(graph.host[i]),
    )


def edge_of(graph: "OpGraph", e: int) -> Edge:
    """Return edge number `e`."""
    src, dst = graph.names[graph.src[e]], graph.names[graph.dst[e]]
    return Edge(src, dst, float(graph.edge_nbytes[e]), optional(graph.edge_transfer[e]))
