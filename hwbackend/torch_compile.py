"""The documented import of the backend of `torch.compile`, see `hwbackend.inductor`."""

from hwbackend.inductor.backend import explain, simsched_backend
from hwbackend.inductor.report import Report

__all__ = ["Report", "explain", "simsched_backend"]
