"""The documented import of `hwbackend.torch.compile`."""

from hwbackend.torch.compile import OPTIONS, Prediction, predict, simsched_backend

__all__ = ["OPTIONS", "Prediction", "predict", "simsched_backend"]
