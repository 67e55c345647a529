"""List scheduling over the streams of devices: what lios, heft, peft and etf share.

`draft` is what schedulers use; `paths`, `placing`, `earliest`, `streams` and `heap` are kernels over `tables`.
"""

from simsched.schedulers.list_scheduling.draft import Draft

__all__ = ["Draft"]
