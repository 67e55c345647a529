"""The documented import of the backend of `torch.compile`, see `hwbackend.inductor`."""

from hwbackend.inductor.backend import Report, explain, simsched_backend

__all__ = ["Report", "explain", "simsched_backend"]
