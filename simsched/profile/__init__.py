"""Measured times of operators, and where they came from."""

from simsched.profile.device import MeasuredDevice
from simsched.profile.measured import MeasuredCopy, MeasuredKernel, MeasuredOperator, Summary
from simsched.profile.profile import Profile, Provenance
from simsched.profile.replay import Replay

__all__ = [
    "MeasuredCopy",
    "MeasuredDevice",
    "MeasuredKernel",
    "MeasuredOperator",
    "Profile",
    "Provenance",
    "Replay",
    "Summary",
]
