"""Lowering: from a `Schedule` to the `Program` that runs it."""

from simsched.model.lowering.lowering import OPTIONS, Lowering

__all__ = ["OPTIONS", "Lowering"]
