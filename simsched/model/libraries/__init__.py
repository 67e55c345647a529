"""The kernels that libraries launch for a work on a device, and each kernel's time alone."""

from simsched.model.libraries.choose import choose, given_terms, unshaped_terms
from simsched.model.libraries.exchanging import exchanging
from simsched.model.libraries.launch import Launch

__all__ = ["Launch", "choose", "exchanging", "given_terms", "unshaped_terms"]
