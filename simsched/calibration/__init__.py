"""Calibration: from measurements of a device to a simulator that predicts it.

`calibrate` fits the parameters of a cluster and the times of operators to a `Profile`; the `Calibration` that it
returns is a cost model, has the fitted cluster, and has its own error on held-out runs.
"""

from simsched.calibration.calibrate import calibrate, recalibrate
from simsched.calibration.calibration import Calibration, Error, read_target
from simsched.calibration.evidence import ALONE, MICROBENCHMARKS, Residual
from simsched.calibration.fitting import ParameterRow

__all__ = [
    "ALONE",
    "MICROBENCHMARKS",
    "Calibration",
    "Error",
    "ParameterRow",
    "Residual",
    "calibrate",
    "read_target",
    "recalibrate",
]
