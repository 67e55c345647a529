"""The kernels that libraries launch for a work on a device, and how long each takes alone."""

from simsched.model.libraries.choose import choose, given, unshaped
from simsched.model.libraries.exchanging import exchanging
from simsched.model.libraries.launch import Launch

__all__ = ["Launch", "choose", "exchanging", "given", "unshaped"]
