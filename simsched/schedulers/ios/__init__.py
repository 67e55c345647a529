"""IOS: stages by dynamic programming."""

from simsched.schedulers.ios.schedule import blocks_of, ios

__all__ = ["blocks_of", "ios"]
