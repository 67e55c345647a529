"""From a program to a trace: what would run when."""

from simsched.simulator.simulate import simulate

__all__ = ["simulate"]
