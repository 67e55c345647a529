"""Hardware backends: what runs a `simsched.Program` on a device and measures it."""

from hwbackend.protocol import Backend, Replay

__all__ = ["Backend", "Replay"]
