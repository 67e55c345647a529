"""Operators alone on the H100: times of the cost model beside measured ones, by family."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from statistics import fmean
from typing import Any, Final, NamedTuple

import simsched as ss
from validation.h100.figures import Figure, Section, number
from validation.hardware.truth import MEASURED, TRUTH, read

_MODULE: Final = "validation.solo"
_NEVER_FITTED: Final = 0
_FOLDS: Final = 3
_ROWS: Final = ("layer_norm", "rms_norm", "softmax")
_REDUCTIONS: Final = ("sum", "argmax", "global_pool")
_GATHERS: Final = ("embedding", "embedding_bag")


class Target(NamedTuple):
    """Most mean absolute logarithm of predicted over measured, and most absolute bias."""

    error: float
    bias: float


TARGETS: Final[Mapping[str, Target]] = {
    "linear fp16, bf16": Target(0.12, 0.05),
    "linear tf32": Target(0.18, 0.10),
    "linear fp32": Target(0.22, 0.10),
    "conv": Target(0.30, 0.15),
    "elementwise and rows": Target(0.20, 0.10),
    "reductions": Target(0.35, 0.20),
    "gathers": Target(0.30, 0.15),
    "all": Target(0.20, 0.06),
}
"""Targets by group of families, for times with warm L2."""


def group(family: str, dtype: str) -> str:
    """Return the group of a family of operators.

    >>> group("linear", "bf16"), group("softmax", "fp16"), group("sdpa", "fp16"), group("embedding_bag", "fp32")
    ('linear fp16, bf16', 'elementwise and rows', 'attention, batched products', 'gathers')
    """
    if family == "linear":
        return "linear fp16, bf16" if dtype in ("fp16", "bf16") else f"linear {dtype}"
    if family in ("sdpa", "bmm"):
        return "attention, batched products"
    if family in ("conv", "lstm"):
        return family
    if family in _REDUCTIONS:
        return "reductions"
    return "gathers" if family in _GATHERS else "elementwise and rows"


def solo_section() -> Section:
    """Return how well times alone are predicted, of groups of shapes that no fit saw and of the others.

    Without `validation.solo` there is nothing to compute.
    """
    title = "Operators alone"
    if find_spec(_MODULE) is None:
        return Section(title, (), notes=(f"Not computed: there is no {_MODULE}.",))
    judge = import_module(_MODULE)
    device = ss.Cluster.preset("h100").devices[0]
    measured = read(MEASURED, TRUTH)["solo"]
    folds = {fold: list(judge.rows_of(measured, device, (fold,))) for fold in range(_FOLDS)}
    fitted = [row for fold, rows in folds.items() if fold != _NEVER_FITTED for row in rows]
    fresh = folds[_NEVER_FITTED]
    figures = []
    table = []
    names = dict.fromkeys(group(row.spec.family, row.spec.dtype) for row in (*fresh, *fitted))
    for name in (*names, "all"):
        warm = _errors(fresh, name, "warm_error")
        cold = _errors(fresh, name, "cold_error")
        before = _errors(fitted, name, "warm_error")
        if name in TARGETS:
            target = TARGETS[name]
            figures.append(Figure(f"alone, never fitted, {name}: mean abs ln, warm", _size(warm), most=target.error))
            figures.append(Figure(f"alone, never fitted, {name}: bias, warm", _mean(warm), -target.bias, target.bias))
        cells = [number(value) for errors in (warm, cold, before) for value in (_size(errors), _mean(errors))]
        table.append((name, len(warm), *cells, len(before)))
    faster, steps = judge.faster_steps([*fresh, *fitted])
    figures.append(Figure(f"steps to more rows, of {steps}, that are faster by more than 2 %", faster, most=0))
    columns = ("group", "n", "warm", "bias", "cold", "bias", "warm, fitted", "bias", "n fitted")
    return Section(title, figures, columns, table)


def _errors(rows: Sequence[Any], name: str, kind: str) -> list[float]:
    chosen = [row for row in rows if name in ("all", group(row.spec.family, row.spec.dtype))]
    return [error for row in chosen if (error := getattr(row, kind)) is not None]


def _size(errors: Sequence[float]) -> float | None:
    return fmean(map(abs, errors)) if errors else None


def _mean(errors: Sequence[float]) -> float | None:
    return fmean(errors) if errors else None
