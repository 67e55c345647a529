"""Published times of mixtures of experts beside those that the simulator gives them.

    python -m validation.experts

**What was fitted**: the time of the kernels that order tokens by experts, to the first mixture up to eight tokens. No
other number was, but only Qwen3-Next was not looked at before: the others had shown that about as much time was missing
everywhere. The part of DRAM is that of products on an H100, fitted to layers of Llama-2-7B; that older GPUs reach it,
too, was seen on the A100 and the L40S of this list. Products are kernels of Triton, in half of the cases not tuned for
the shape.
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
    others = [case for published, times in compared if not published["fitted"] for case in times]
    decode = [case for case in others if int(case.name) <= DECODE]
    figures = [
        Figure(f"mean abs ln up to {DECODE} tokens, of {len(decode)} not fitted", mean_error(decode), most=MOST),
        Figure(f"mean abs ln of all {len(others)} not fitted", mean_error(others), most=MOST),
    ]
    rows = [
        (
            f"[{published['model']}]({published['address']})",
            published["gpu"],
            published["dtype"],
            "fitted" if published["fitted"] else "not fitted",
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
