"""Opara: operators on streams in one pass, launched by class and by what they need of the GPU."""

from simsched.schedulers.opara.scheduler import opara

__all__ = ["opara"]
