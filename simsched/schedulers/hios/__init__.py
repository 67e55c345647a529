"""HIOS: schedulers for several GPUs, by longest paths (LP) or recorded mappings (MR), with or without stages."""

from simsched.schedulers.hios.lp import hios_lp, inter_lp
from simsched.schedulers.hios.mr import hios_mr, inter_mr

__all__ = ["hios_lp", "hios_mr", "inter_lp", "inter_mr"]
