"""Calibration: from measurements of a device to a simulator that predicts it.

`calibrate` fits the parameters of a cluster and the times of operators to a `Profile`; the `Calibration` that it
returns is a cost model, has the fitted cluster, and has its own error on held-out runs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simsched.calibration.calibration import Calibration, Error, read_target
    from simsched.calibration.evidence import ALONE, MICROBENCHMARKS, Residual
    from simsched.calibration.fits import calibrate, recalibrate
    from simsched.calibration.fitting import ParameterRow

_MODULE_OF = {
    "ALONE": "evidence",
    "Calibration": "calibration",
    "Error": "calibration",
    "MICROBENCHMARKS": "evidence",
    "ParameterRow": "fitting",
    "Residual": "evidence",
    "calibrate": "fits",
    "read_target": "calibration",
    "recalibrate": "fits",
}

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


def __getattr__(name: str) -> Any:
    # Names are imported when they are first used: a comparison needs parameters alone, not the fits.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
