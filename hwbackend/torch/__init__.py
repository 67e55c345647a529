"""Operators of PyTorch: the measuring backend, `apply`, and `explain` for what `torch.compile` did."""

from typing import Any


def explain(compiled: Any) -> tuple[Any, ...]:
    """Return what became of each graph of a compiled model; see `hwbackend.inductor.backend.explain`."""
    from hwbackend.inductor import backend  # it needs this package

    return backend.explain(compiled)
