"""Spans and kernels from traces as the profiler of PyTorch writes them."""

from functools import partial

import numpy as np
import pytest
from kineto_traces import KinetoTrace
from shortened import in_order

import simsched as ss
from hwbackend.torch.traces import ITERATION, read_runs, spans_of, with_kernels
from simsched.base.errors import FormatError
from simsched.model.graph import Edge, Kernel, Operator, OpGraph

GRAPH = OpGraph(
    [
        Operator("conv", kernels=(Kernel(4, share=0.25), Kernel(8, share=0.75))),
        Operator("view", "view", time=0.0),
        Operator("relu", kernels=(Kernel(2),)),
    ],
    [Edge("conv", "view", 64.0), Edge("view", "relu", 64.0)],
)


def lowered(execution="events"):
    return in_order(GRAPH, execution=execution).lower(ss.Cluster.preset("a100"))


def begun():
    """A trace of one run, in which nothing is done yet."""
    trace = KinetoTrace()
    trace.mark(f"{ITERATION}#0", 0.0, 900.0)
    return trace


def annotated(steps=3, grid=(108, 1, 1)):
    """Runs of 1000 us: conv launches kernels of 4 and 20 us at 300 and 310 us, relu one of 3 + k us at 340 us."""
    trace = KinetoTrace()
    for k in range(steps):
        t = 1000.0 * k
        trace.mark(f"{ITERATION}#{k}", t, 900.0)
        for name, start in (("conv", 5.0), ("view", 105.0), ("relu", 155.0)):
            trace.mark(name, t + start, 45.0)
        kernels = [(t + 300, 4.0, {"name": "pack"}), (t + 310, 20.0, {"name": "gemm", "grid": grid})]
        trace.launched("aten::conv2d", t + 10, 35.0, kernels)
        trace.op("aten::view", t + 110, 20.0)
        trace.launched("aten::relu", t + 160, 30.0, [(t + 340, 3.0 + k, {"name": "clamp"})])
    return trace


def captured(nodes):
    """A run in which one launch of a graph ran nodes (start, duration) in order."""
    trace = begun()
    call = trace.call("cudaGraphLaunch", 10.0)
    for i, (start, length) in enumerate(nodes):
        trace.kernel(call, start, length, stream=7 + i % 2, **{"graph node id": i + 1})
    return trace


def test_each_kernel_has_its_own_span(tmp_path):
    """From the start of the run on the host; the view, without a kernel, ends when what it reads does."""
    runs = read_runs(annotated().write(tmp_path / "trace.json"), lowered())
    assert [run.end for run in runs] == [343.0, 344.0, 345.0]
    launches, copies = spans_of(lowered(), runs[0])
    assert launches.tolist() == [[300, 304], [310, 330], [330, 330], [340, 343]]
    assert copies.shape == (0, 2)


def test_other_kernels_than_launches_share_the_whole_span(tmp_path):
    """A convolution of one launch in the program: from the first start to the last end, 300 to 330 us. Of three
    kernels instead of two: shares of 1/4 and 3/4 of 30 us."""
    (run,) = read_runs(annotated(1).write(tmp_path / "trace.json"), lowered())
    spans = dict(run.kernels)
    spans["conv"] = [(300.0, 304.0), (305.0, 306.0), (310.0, 330.0)]
    launches, _ = spans_of(lowered(), run._replace(kernels=spans))
    assert launches[:2].tolist() == [[300.0, 307.5], [307.5, 330.0]]


def test_nodes_of_a_captured_graph_are_told_by_their_order(tmp_path):
    path = captured([(20.0, 5.0), (30.0, 6.0), (40.0, 7.0)]).write(tmp_path / "trace.json")
    (run,) = read_runs(path, lowered("graph"), ["conv", "conv", "relu"])
    launches, _ = spans_of(lowered("graph"), run)
    assert launches.tolist() == [[20, 25], [30, 36], [36, 36], [40, 47]]


def test_what_was_not_recorded_is_refused(tmp_path):
    """Two nodes of three; no kernels in a run, or of a graph."""
    path = captured([(20.0, 5.0), (30.0, 6.0)]).write(tmp_path / "trace.json")
    with pytest.raises(FormatError, match="launches 2 graph nodes, but captured= names the operators of 3"):
        read_runs(path, lowered("graph"), ["conv", "conv", "relu"])
    trace = begun()
    for k, name in enumerate(GRAPH.names):
        trace.mark(name, 100.0 * k + 5, 50.0)
        trace.op("aten::op", 100.0 * k + 10, 5.0)
    for read in (partial(read_runs, program=lowered()), partial(with_kernels, GRAPH)):
        with pytest.raises(FormatError, match="recorded no kernels"):
            read(trace.write(path))


def test_a_copy_has_the_span_of_its_mark(tmp_path):
    graph = OpGraph([Operator("a", kernels=(Kernel(1),)), Operator("b", kernels=(Kernel(1),))], [Edge("a", "b", 64.0)])
    program, trace = in_order(graph, [0, 1]).lower(ss.Cluster.preset("a100", 2)), begun()
    for k, name in enumerate(("a", "simsched.copy#0", "b")):
        trace.mark(name, 100.0 * k + 5, 50.0)
        outer = trace.op("aten::copy_", 100.0 * k + 10, 30.0)
        call = trace.call("cudaMemcpyAsync", 100.0 * k + 12, external=outer)
        if name in graph.index:
            trace.kernel(call, 100.0 * k + 30, 20.0, device=k // 2, external=outer)
        else:
            trace.copy(call, 100.0 * k + 30, 9.0, external=outer)
    (run,) = read_runs(trace.write(tmp_path / "trace.json"), program)
    launches, copies = spans_of(program, run)
    assert launches.tolist() == [[30, 50], [230, 250]]
    assert copies.tolist() == [[130, 139]]


def test_a_graph_gets_the_kernels_that_were_launched(tmp_path):
    """Shares by medians of 4 and 20 us; times stay those of the graph."""
    found = with_kernels(GRAPH, annotated(grid=(11, 2, 1)).write(tmp_path / "trace.json"))
    assert [kernel.blocks for kernel in found["conv"].kernels] == [108, 22]
    assert np.allclose([kernel.share for kernel in found["conv"].kernels], [4 / 24, 20 / 24])
    assert found["view"].kernels == ()
    assert found["conv"].time is None
    assert (found.names, found.edges) == (GRAPH.names, GRAPH.edges)
