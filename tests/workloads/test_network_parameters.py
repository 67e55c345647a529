"""Parameters of networks: a wrong one is named whatever it is, and numpy's whole numbers count as Python's."""

from inspect import signature

import numpy as np
import pytest

from simsched.base.errors import GraphError
from workloads import WORKLOADS, load

NETWORKS = [name for name in WORKLOADS if not name.startswith("random:")]
NEITHER = (True, -1, 1.5, float("nan"), b"x", [], {}, -(10**5000), object())  # a size of, nor the name of, anything


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_wrong_is_named(name):
    for parameter in signature(WORKLOADS[name]).parameters:
        for value in NEITHER if parameter != "graphs" else ():  # a path, for the reader to refuse
            with pytest.raises(GraphError, match=parameter):
                load(name, **{parameter: value})


@pytest.mark.parametrize("granularity", ["unit", "operator"])
@pytest.mark.parametrize(("name", "parameters"), [
    ("resnet50", {"batch": 3, "image_size": 100}),
    ("t5_small_encoder", {"batch": 2, "sequence_length": 100}),
    ("deepfm", {"batch": 100, "rows": 100, "factors": 100, "hidden": 100}),
    ("rnntc_sru", {"layers": 2, "sequence_length": 2, "features": 100, "classes": 100}),
])  # fmt: skip
def test_narrow_numbers_do_not_overflow(name, parameters, granularity):
    """100 of 8 bits times anything from 2 on would."""
    narrow = {key: np.int8(value) for key, value in parameters.items()}
    assert load(name, **narrow, granularity=granularity) == load(name, **parameters, granularity=granularity)
