"""The best schedule of the contention-free model, and the proof of how good it is."""

from simsched.optimum.optimum import Optimum, optimal

__all__ = ["Optimum", "optimal"]
