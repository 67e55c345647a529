"""The kernels that libraries launch for a work on a device, and each kernel's time alone."""

from simsched.model.libraries.choose import choose, given, unshaped
from simsched.model.libraries.launch import Launch

__all__ = ["Launch", "choose", "given", "unshaped"]
