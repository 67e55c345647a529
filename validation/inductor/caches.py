"""Answers of Inductor that compilations of one graph in many orders share."""

import sys
from functools import cache
from importlib import import_module
from typing import Final

from hwbackend.torch.inductor.plan import FusedKernel, make_plan

_SLOW: Final = ("stride_at", "simplify_index_in_vec_range", "stride_at_vec_range")
"""Functions of `torch._inductor.sizevars` that keep their last 128 answers; a graph has more."""


def keep_answers() -> None:
    """Keep all answers of slow functions from here on, and have ready what schedules need, for processes to come.

    A version of PyTorch that has no such function is as slow as it was.
    """
    import_module("torch._inductor.codegen.cpp")  # has them by names of its own
    sizevars = import_module("torch._inductor.sizevars")

    for name in _SLOW:
        known = getattr(sizevars, name, None)
        wrapped = getattr(known, "__wrapped__", None)
        if wrapped is not None:
            kept = cache(wrapped)
            for module in [module for module in sys.modules.values() if getattr(module, name, None) is known]:
                setattr(module, name, kept)
    pair = [FusedKernel(name, (), ()) for name in "ab"]
    make_plan(pair, [], lambda _graph: ([0, 1], [0, 1]))  # compiles, or loads from disk
