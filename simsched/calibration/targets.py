"""Files of what schedules are made for: clusters and calibrations."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from simsched.base.errors import FormatError
from simsched.base.io import read_json
from simsched.calibration.calibration import Calibration
from simsched.model import Cluster, Target


def read_target(path: str | os.PathLike[str]) -> Target:
    """Return the cluster or the calibration that a file holds.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it holds neither.
    """
    data = read_json(path)
    readers: Mapping[str, Callable[[Any, str], Target]] = {
        "simsched.calibration": Calibration.from_dict,
        "simsched.cluster": Cluster.from_dict,
    }
    kind = data.get("format") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in readers:
        raise FormatError(f"{path}: field 'format' is {kind!r:.40}; expected one of: {', '.join(readers)}")
    return readers[kind](data, os.fspath(path))
