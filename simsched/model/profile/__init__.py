"""Measured times of operators, and where they came from."""

from simsched.model.profile.measured import MeasuredCopy, MeasuredDevice, MeasuredKernel, MeasuredOperator
from simsched.model.profile.profile import Profile, Provenance, Replay

__all__ = ["MeasuredCopy", "MeasuredDevice", "MeasuredKernel", "MeasuredOperator", "Profile", "Provenance", "Replay"]
