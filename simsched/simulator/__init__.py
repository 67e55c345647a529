"""From a program to a trace: the simulator and its two engines."""

from simsched.simulator.evaluator import Evaluator
from simsched.simulator.simulate import Makespans, simulate, simulate_batch, simulate_many
from simsched.simulator.stage_latency import StageLatency

__all__ = ["Evaluator", "Makespans", "StageLatency", "simulate", "simulate_batch", "simulate_many"]
