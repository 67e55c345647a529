"""Operators of PyTorch: the measuring backend, `apply`, and reports of `torch.compile`."""

from typing import Any


def explain(compiled: Any) -> tuple[Any, ...]:
    """Return what became of each graph of a compiled model; see `hwbackend.torch.inductor.backend.explain`."""
    from hwbackend.torch.inductor import backend  # it imports PyTorch

    return backend.explain(compiled)
