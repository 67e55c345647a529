"""The documented import of `hwbackend.measuring.environment`."""

from hwbackend.measuring.environment import environment

__all__ = ["environment"]
