"""Lower bounds on makespans: what no schedule can beat."""

from simsched.bounds.simulated import Bounds, bounds, lower_bound

__all__ = ["Bounds", "bounds", "lower_bound"]
