"""The documented import of `hwbackend.torch.apply`."""

from hwbackend.torch.apply import Scheduled, apply, schedule_module

__all__ = ["Scheduled", "apply", "schedule_module"]
