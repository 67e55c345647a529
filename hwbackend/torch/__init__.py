"""Operators of PyTorch: the measuring backend, `apply`, and what `torch.compile` did with the backend of this project."""

from typing import Any


def explain(compiled: Any) -> tuple[Any, ...]:
    """Return what became of each graph of a compiled model; see `hwbackend.inductor.backend.explain`."""
    from hwbackend.inductor import backend  # it needs this package

    return backend.explain(compiled)
