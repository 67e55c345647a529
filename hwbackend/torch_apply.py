"""The documented import of `hwbackend.torch.apply`."""

from hwbackend.torch.apply import Scheduled, apply, scheduled

__all__ = ["Scheduled", "apply", "scheduled"]
