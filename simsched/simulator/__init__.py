"""From a program to a trace: what would run when."""

from simsched.simulator.sampling import Makespans, simulate_batch, simulate_many
from simsched.simulator.simulate import simulate

__all__ = ["Makespans", "simulate", "simulate_batch", "simulate_many"]
