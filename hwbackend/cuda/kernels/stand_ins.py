"""Stand-ins: synthetic kernels of the launch shapes, the bytes and the time of kernels that cannot be run here."""

from hwbackend.measuring.synth import SYNTH
from simsched.base.errors import BackendError, ClusterError
from simsched.model import WARP, Device, Kernel, Operator, OpGraph, default_cost
from simsched.model.cluster.device import occupancy
from simsched.model.launches import kernels_on


def stand_in(op: Operator, kernels: tuple[Kernel, ...], device: Device) -> Operator:
    """Return a synthetic operator that takes the place of another.

    Parameters
    ----------
    op
        The operator; its `time` is the time that was measured, or the roofline's if it has none.
    kernels
        Its kernels: as recorded, or as the libraries of the device would choose.
    device
        The device that runs it.

    Raises
    ------
    BackendError
        If a block of a kernel does not fit on the device.

    Notes
    -----
    Grid, block, registers and shared memory are those of the kernels, and so is their share of bytes and time. Each
    block lasts the time of its kernel over the number of waves. FLOP and bytes are as many as fp32 and DRAM can do in
    that time at most: tensor cores are not used, so the time is kept and their load is not.
    """
    time = default_cost(op, device)
    holds = []
    load = 0.0
    for kernel in kernels:
        try:
            resident = occupancy(device, kernel).blocks
        except ClusterError as error:
            raise BackendError(f"operator {op.name!r} of kind {op.kind!r}: {error}") from error
        waves = -(-kernel.blocks // (resident * device.sms))
        holds.append(time * kernel.share / waves)
        warps = kernel.blocks * -(-kernel.threads // WARP)
        load += kernel.share * min(1.0, warps / (device.saturating_warps * device.sms))
    return Operator(
        op.name,
        SYNTH,
        block=op.block,
        flops=min(op.flops, time * load * device.peak_rate("fp32")),
        nbytes=min(op.nbytes, time * device.bandwidth),
        time=time,
        kernels=kernels,
        intensity=op.intensity,
        attributes={"hold": holds},
    )


def with_stand_ins(graph: OpGraph, device: Device) -> OpGraph:
    """Return a graph in which each operator that says its kernels or works is replaced by `stand_in`.

    Kernels of the graph are kept: they were recorded. The libraries of the device choose the others.
    """
    launches = kernels_on(graph, device)
    operators = []
    for i, op in enumerate(graph.operators):
        if op.kind == SYNTH or not (op.kernels or op.works):
            operators.append(op)
        else:
            operators.append(stand_in(op, op.kernels or launches.kernels(i), device))
    if tuple(operators) == tuple(graph.operators):
        return graph
    return OpGraph(operators, graph.edges, graph.name)
