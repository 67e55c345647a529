"""Hardware backends, which run a `simsched.Program` on a device and measure it.

>>> import hwbackend
>>> [entry.name for entry in hwbackend.available()]
['cupy', 'torch', 'synthetic', 'recorded']
"""

from hwbackend.registry import BACKENDS, Availability, available, get
from simsched.model.backend import Backend
from simsched.model.profile import Replay

__all__ = ["BACKENDS", "Availability", "Backend", "Replay", "available", "get"]
