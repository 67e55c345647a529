"""Feed-forward networks of a layer: dense ones, and mixtures of experts."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from simsched.model.graph import Collective
from workloads.llm.architecture import Experts
from workloads.llm.step import ENGINE, STORED_NBYTES, StepGraph, StepTensor

_ROUTER_FLOPS: Final = 5.0
"""FLOP for each score of a router, the same as of a softmax."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """How a model is divided among GPUs.

    Parameters
    ----------
    tp
        GPUs that share heads and features of one token.
    ep
        Parts of the experts.
    dp
        Groups of `tp` GPUs that have sequences of their own.
    """

    tp: int
    ep: int

    @property
    def dp(self) -> int:
        """Groups of GPUs that have sequences of their own."""
        return max(1, self.ep // self.tp)

    @property
    def number(self) -> int:
        """GPUs in all."""
        return self.tp * self.dp

    @property
    def per_expert(self) -> int:
        """GPUs over which one expert is divided."""
        return self.number // self.ep


def dense(step: StepGraph, x: StepTensor, rows: int, hidden: int, ffn: int, *, prefix: str = "") -> StepTensor:
    """Add a gated network of `ffn` inner features; return its output before any all-reduce."""
    both = step.linear(f"{prefix}up_gate", [x], rows, hidden, 2 * ffn)
    inner = step.gated_activation(f"{prefix}act", both, rows, ffn)
    return step.linear(f"{prefix}down", [inner], rows, ffn, hidden)


def count_reached(number: int, chosen: int, tokens: int) -> float:
    """Return how many of the experts some tokens reach, as expected if each token draws its own evenly.

    >>> count_reached(8, 2, 1), count_reached(8, 2, 1000), round(count_reached(256, 8, 32), 2)
    (2.0, 8.0, 163.31)
    """
    return number * (1.0 - (1.0 - chosen / number) ** tokens)


def mixture(step: StepGraph, x: StepTensor, rows: int, hidden: int, experts: Experts, ranks: Ranks) -> StepTensor:
    """Add a mixture of experts; return the sum of routed and shared ones before any all-reduce.

    Parameters
    ----------
    x
        The normalised input, (rows, hidden).
    rows
        Tokens of this GPU.
    """
    scores = step.linear("router", [x], rows, hidden, experts.number, plain=True)
    work = replace(
        step.costs.rows("softmax", rows, experts.number, flops=_ROUTER_FLOPS * rows * experts.number),
        reads=scores.nbytes,
        writes=8.0 * rows * experts.chosen,
    )
    chosen = step.add("top_k", "top_k", work, [scores])
    tokens = rows * ranks.dp
    n_pairs = tokens * experts.chosen / ranks.ep  # of a token and an expert of this GPU
    routed_input = x
    if ranks.dp > 1:
        copies = float(rows * experts.chosen * hidden * step.products.width)
        routed_input = step.collective("dispatch", Collective("all_to_all", copies, ranks.ep), [x, chosen])
    ordering = replace(
        step.costs.rows("order", 1, max(1, round(n_pairs)), flops=0.0), reads=8.0 * n_pairs, writes=8.0 * n_pairs
    )
    order = step.add("experts.order", "permute", ordering, [chosen])
    routed = _add_experts(step, [routed_input, order], tokens, n_pairs, hidden, experts, ranks)
    if ranks.dp > 1:
        back = float(rows * experts.chosen * hidden * step.width)
        routed = step.collective("combine", Collective("all_to_all", back, ranks.ep), [routed])
    if ranks.dp == 1:
        reads = n_pairs * hidden * step.width
    else:
        reads = float(rows * experts.chosen * hidden * step.width)
    passed = float(rows * hidden * step.width)
    total = step.moving(
        "experts.sum", "add", [routed, chosen], rows * hidden, reads=reads, writes=passed, flops=reads / step.width
    )
    if not experts.shared_ffn:
        return total
    shared = dense(step, x, rows, hidden, max(1, experts.shared_ffn // ranks.tp), prefix="shared.")
    return step.moving(
        "experts.add_shared",
        "add",
        [total, shared],
        rows * hidden,
        reads=2.0 * passed,
        writes=passed,
        flops=float(rows * hidden),
    )


def _add_experts(
    step: StepGraph, xs: list[StepTensor], tokens: int, n_pairs: float, hidden: int, experts: Experts, ranks: Ranks
) -> StepTensor:
    """Add the grouped products of the experts of this GPU that tokens reach."""
    ffn = max(1, experts.ffn // ranks.per_expert)
    n_reached = min(n_pairs, count_reached(experts.number, experts.chosen, tokens) / ranks.ep)
    n_held = experts.number / ranks.ep
    both = _add_grouped_product(step, "experts.up_gate", xs, n_held, n_reached, n_pairs, hidden, 2 * ffn)
    n_values = max(1, round(n_pairs * ffn))
    inner = step.moving(
        "experts.act",
        "silu_mul",
        [both],
        n_values,
        reads=2.0 * n_pairs * ffn * step.width,
        writes=n_pairs * ffn * step.width,
        flops=6.0 * n_pairs * ffn,
    )
    return _add_grouped_product(step, "experts.down", [inner], n_held, n_reached, n_pairs, ffn, hidden)


def _add_grouped_product(
    step: StepGraph,
    name: str,
    xs: list[StepTensor],
    n_held: float,
    n_reached: float,
    n_pairs: float,
    inner: int,
    columns: int,
) -> StepTensor:
    """Add a product for each expert that is reached of those held, all in one kernel, with as many rows each."""
    costs = step.products
    batch = max(1, round(n_reached))
    nbytes = inner * columns * STORED_NBYTES[step.formats.expert_weights]
    work = replace(
        costs.matmul(batch, max(1, ceil(n_pairs / batch)), inner, columns),
        rule=ENGINE,
        flops=2.0 * n_pairs * inner * columns,
        reads=n_pairs * inner * costs.width,
        writes=n_pairs * columns * step.width,
        weights=n_reached * nbytes,
    )
    return step.add(name, "experts", work, xs, dtype=costs.dtype, kept=n_held * nbytes)
