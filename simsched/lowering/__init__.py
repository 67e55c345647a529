"""From a `Schedule` to the `Program` that runs it."""

from simsched.lowering.lower import Lowering, lower

__all__ = ["Lowering", "lower"]
