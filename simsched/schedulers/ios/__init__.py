"""IOS: dynamic programming over stages."""

from simsched.schedulers.ios.scheduler import ios

__all__ = ["ios"]
