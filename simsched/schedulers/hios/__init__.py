"""HIOS-LP and HIOS-MR: operators are mapped to devices, with stages or without."""

from simsched.schedulers.hios.schedule import Ranked, Stages, hios_lp, hios_mr, inter_lp, inter_mr

__all__ = ["Ranked", "Stages", "hios_lp", "hios_mr", "inter_lp", "inter_mr"]
