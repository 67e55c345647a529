"""The command that ranks overlaps of operators by their gains."""

from functools import partial
from typing import Annotated

import simsched as ss
from simsched.cli import options as opt
from simsched.cli.options import Text, drawn, option


def overlap(
    graph: opt.Graph,
    target: opt.Target,
    result: opt.ResultOptions,
    over: Annotated[
        Text,
        option("Vary a parameter of GRAPH, by powers of two, and say where overlaps turn.", metavar="batch=1:4096"),
    ] = None,
    measured: Annotated[
        float | None, option("Time of the step as it was measured without overlaps: gains are over it.", metavar="US")
    ] = None,
    partition: Annotated[
        bool, option("Search for the best division of SMs between the streams.", "--partition")
    ] = False,
    execution: Annotated[
        str, option("graph, captured; events, launched by a lean host; or eager, by PyTorch's host.")
    ] = "graph",
    worth: Annotated[
        float, option("Gain in per cent from which on an overlap is said to pay.", metavar="PERCENT")
    ] = 2.0,
    plot: Annotated[Text, drawn("Draw gains, over the parameter if one varies: .png, .svg or .pdf.")] = None,
) -> None:
    """Rank overlaps of operators of GRAPH on one GPU: gains, losses, and the values at which they turn.

    Of a graph with collectives, such as llm:CONFIG,tp=8, give --gpus 8: the GPU
    is one of eight that all do the same.
    """
    from simsched.experiments.overlap import read_over
    from workloads import load_kind
    from workloads.registry import takes

    graph.require_one_rank()
    if over is None:
        varied = None
    else:
        varied = read_over(over)
    is_read = graph.traced is not None or graph.shape is not None
    if is_read:
        load = None
    else:
        load = partial(load_kind, graph.spec)
    if takes(graph.spec, "microbatches"):
        halves = partial(load_kind, graph.spec, microbatches=2)
    else:
        halves = None
    overlaps = ss.overlap(
        graph.read(),
        target.read(graph),
        execution=execution,
        load=load,
        halves=halves,
        over=varied,
        measured_us=measured,
        partition=partition,
        worth=worth / 100.0,
    )
    result.tell(overlaps, files=[("picture", plot, overlaps.plot)], name="overlaps", ran=graph.traced_facts())
