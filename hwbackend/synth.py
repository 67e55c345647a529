"""The documented import of `hwbackend.measuring.synth`."""

from hwbackend.measuring.synth import OUTPUT_NBYTES, SYNTH, realised

__all__ = ["OUTPUT_NBYTES", "SYNTH", "realised"]
