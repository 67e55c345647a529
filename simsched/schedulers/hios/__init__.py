"""HIOS: schedulers for several GPUs, by longest paths (LP) or recorded mappings (MR), with or without stages."""

from simsched.schedulers.hios.schedulers import hios_lp, hios_mr, inter_lp, inter_mr

__all__ = ["hios_lp", "hios_mr", "inter_lp", "inter_mr"]
