"""List scheduling over the streams of devices: what lios, heft, peft and etf share.

`draft` is what schedulers use; `core`, `heap` and `streams` are compiled, and `layout` is the table between them.
"""

from simsched.schedulers.list_scheduling.draft import Draft

__all__ = ["Draft"]
