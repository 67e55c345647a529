"""From a `Schedule` to the `Program` that runs it."""

from simsched.model.lowering.lowering import Lowering, lower

__all__ = ["Lowering", "lower"]
