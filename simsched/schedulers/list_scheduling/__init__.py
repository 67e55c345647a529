"""List scheduling over the streams of devices: what lios, heft, peft and etf share.

`draft` is what schedulers use; `placing` holds the kernels and their tables.
"""

from simsched.schedulers.list_scheduling.draft import Draft

__all__ = ["Draft"]
