"""Measured times of operators, and where they came from."""

from simsched.model.profile.device import MeasuredDevice
from simsched.model.profile.measured import MeasuredCopy, MeasuredKernel, MeasuredOperator
from simsched.model.profile.profile import Profile, Provenance
from simsched.model.profile.replay import Replay

__all__ = ["MeasuredCopy", "MeasuredDevice", "MeasuredKernel", "MeasuredOperator", "Profile", "Provenance", "Replay"]
