"""The documented import of the backend of `torch.compile`, see `hwbackend.torch.inductor`."""

from hwbackend.torch.inductor.backend import explain, simsched_backend
from hwbackend.torch.inductor.report import Report

__all__ = ["Report", "explain", "simsched_backend"]
