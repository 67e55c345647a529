"""Operators of a graph against the outermost operators of a torch.profiler trace, in order."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from simsched.base.errors import FormatError
from workloads.formats.kineto_units import Joined, Run, outermost_runs

# What PyTorch calls the operators of a kind; a kind that is not here is called by its own name.
_CALLED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "conv": r"(cudnn|mkldnn|slow)?conv(_transpose|_depthwise)?[123]?d?|convolution(_overrideable)?",
        "linear": "linear|addmm|matmul|mm",
        "matmul": "matmul|bmm|mm|baddbmm",
        "pool": r"\w*pool[123]?d?(_with_indices)?|mean",
        "concat": "cat|concat|concatenate",
        "batch_norm": r"\w*batch_norm\w*",
        "layer_norm": r"\w*layer_norm",
        "relu": "relu6?|clamp(_min)?",
        "softmax": r"(log_|safe_)?softmax",
        "view": r"view|reshape|(un)?flatten|(un)?squeeze|(un)?expand|permute|transpose|t|chunk|split|slice|select",
        "copy": "copy|clone|contiguous|to|reshape|permute|transpose",
        "dropout": r"\w*dropout",
    }
)
# Operators that PyTorch may have no operator for, or none that does anything.
_SILENT: Final = ("input", "output", "placeholder", "constant", "identity", "dropout", "view", "flatten", "size")


def by_order(joined: Joined, names: Sequence[str], kinds: Sequence[str] | None) -> list[list[Run]]:
    """Return what ran in each iteration, the outermost operators taken for those of the graph in turn.

    An outermost operator that launches no kernel and does not fit is passed over. Without kinds the number of
    operators that launch kernels (on the CPU: of all) must be that of the names.

    Raises
    ------
    FormatError
        If they do not match; the message names the first that does not.
    """
    runs = outermost_runs(joined)
    for i, part in enumerate(runs):
        if part:
            runs[i] = _counted(joined, part, names, i) if kinds is None else _matched(joined, part, names, kinds, i)
    return runs


def _counted(joined: Joined, part: list[Run], names: Sequence[str], i: int) -> list[Run]:
    launching = part if not len(joined.activities) else [run for run in part if _launches(joined, run)]
    if len(launching) != len(names):
        raise FormatError(
            f"{joined.source}: {len(launching)} operators ran in iteration {i} where the graph has {len(names)}; "
            f"annotate the operators with their names (record_function), or give an OpGraph to match kinds"
        )
    return [replace(run, name=name) for name, run in zip(names, launching, strict=True)]


def _matched(joined: Joined, part: list[Run], names: Sequence[str], kinds: Sequence[str], i: int) -> list[Run]:
    found: list[Run] = []
    for run in part:
        k = len(found)
        while k < len(names) and kinds[k] in _SILENT and not _fits(kinds[k], run.name):
            k += 1
        if k < len(names) and _fits(kinds[k], run.name):
            found += [Run(name, []) for name in names[len(found) : k]]  # nothing of these is in the trace
            found.append(replace(run, name=names[k]))
        elif _launches(joined, run):
            k = len(found)
            expected = f"{names[k]!r} of kind {kinds[k]!r}" if k < len(names) else "no further operator"
            raise FormatError(
                f"{joined.source}: in iteration {i} operator {k} of the graph is {expected}, but {run.name!r} ran; "
                f"annotate the operators with their names (record_function) to join by name"
            )
    while len(found) < len(names) and kinds[len(found)] in _SILENT:
        found.append(Run(names[len(found)], []))
    if len(found) < len(names):
        raise FormatError(
            f"{joined.source}: in iteration {i} nothing ran for operator {names[len(found)]!r} of kind "
            f"{kinds[len(found)]!r}; annotate the operators with their names (record_function) to join by name"
        )
    return found


def _launches(joined: Joined, run: Run) -> bool:
    what, kinds = joined.activities.what, joined.activities.kinds
    return any(kinds[what[row]].what == "kernel" for row in run.activities)


@lru_cache(maxsize=4096)
def _fits(kind: str, name: str) -> bool:
    """Return whether an operator of PyTorch may be of a kind.

    >>> _fits("conv", "aten::conv2d"), _fits("relu", "aten::relu_"), _fits("add", "aten::mul")
    (True, True, False)
    """
    called = name.rpartition("::")[2].strip("_")
    if called.replace("_", "") == kind.replace("_", ""):
        return True
    pattern = _CALLED.get(kind)
    return pattern is not None and re.fullmatch(pattern, called) is not None
