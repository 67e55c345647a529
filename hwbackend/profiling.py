"""The documented import of `hwbackend.measuring.profiling`."""

from hwbackend.measuring.profiling import SEQUENTIAL_ORDERS, microbenchmarks, profile

__all__ = ["SEQUENTIAL_ORDERS", "microbenchmarks", "profile"]
