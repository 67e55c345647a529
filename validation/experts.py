"""Published times of mixtures of experts beside those that the simulator gives them.

    python -m validation.experts

**The split** was stated before the fit: of `validation/experts.json` the first mixture, up to eight tokens, is for the
time of the kernels that order tokens by experts, from 16 tokens on for the part of DRAM that products of engines reach.
All others are held out. Their products are kernels of Triton, in half of the cases not tuned for the shape.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import simsched as ss
from simsched.base.io import read_json
from simsched.model import operator_times
from validation.h100.figures import Case, Figure, Section, mean_error
from workloads.llm.architecture import Experts
from workloads.llm.feed_forward import Ranks, mixture
from workloads.llm.step import NumberFormats, StepGraph, StepTensor

MIXTURES: Final = Path(__file__).with_name("experts.json")
DECODE: Final = 128
"""Tokens up to which a mixture counts as decode."""
MOST: Final = 0.15
_BESIDE: Final = ("norm", "router")
"""Operators of the graph that the published times leave out."""
_PARAMETERS: Final = 1e12  # bytes of the whole model: none of them stays in L2
Mixture = Mapping[str, Any]


def mixtures() -> list[Mixture]:
    """Return the published mixtures."""
    published: list[Mixture] = read_json(MIXTURES)["mixtures"]
    return published


def simulated(published: Mixture, tokens: int) -> float:
    """Return the time of a mixture in us."""
    dtype = published["dtype"]
    step = StepGraph(published["model"], NumberFormats(dtype, dtype, dtype, "bf16"))
    x = step.norm("norm", [StepTensor(None, 0.0)], tokens, published["hidden"])
    sizes = Experts(published["experts"], published["chosen"], published["ffn"], 0)
    mixture(step, x, tokens, published["hidden"], sizes, Ranks(published["tp"], 1))
    graph = step.graph()
    rows = [op for op in graph.operators if op.name not in _BESIDE]
    whole = [replace(op, works=tuple(replace(work, parameters=_PARAMETERS) for work in op.works)) for op in rows]
    return float(operator_times(ss.OpGraph(whole), ss.Cluster.preset(published["gpu"]).devices[0]).sum())


def cases(published: Mixture) -> list[Case]:
    """Return simulated and measured times by tokens."""
    return [Case(tokens, simulated(published, int(tokens)), us) for tokens, us in published["us"].items()]


def sections() -> Iterator[Section]:
    """Yield the table."""
    compared = [(published, cases(published)) for published in mixtures()]
    held = [case for published, times in compared if not published["fitted"] for case in times]
    decode = [case for case in held if int(case.name) <= DECODE]
    figures = [
        Figure(f"mean abs ln up to {DECODE} tokens, of {len(decode)} held out", mean_error(decode), most=MOST),
        Figure(f"mean abs ln of all {len(held)} held out", mean_error(held), most=MOST),
    ]
    rows = [
        (
            f"[{published['model']}]({published['address']})",
            published["gpu"],
            published["dtype"],
            "fitted" if published["fitted"] else "held out",
            "tuned" if published["tuned"] else "default",
            f"{mean_error(times):.2f}",
            ", ".join(f"{case.name}: {case.predicted / case.measured:.2f}" for case in times),
        )
        for published, times in compared
    ]
    columns = ("mixture", "GPU", "format", "use", "kernels", "mean abs ln", "simulated over measured, by tokens")
    yield Section("Mixtures of experts", figures, columns, rows)


def main(_arguments: Sequence[str] | None = None) -> int:
    """Print the table; return the exit status."""
    for section in sections():
        print("\n".join(section.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
