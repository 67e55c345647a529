"""Options of the backend of `torch.compile`: names and values."""

from dataclasses import replace

import numpy as np
import pytest

import simsched as ss
from hwbackend.torch.inductor.options import CompileOptions, merge_options, read_options, require_device
from simsched.base.errors import ArgumentError, ScheduleError, SimschedError
from simsched.calibration import Calibration

A100 = ss.Cluster.preset("a100")
H100 = ss.Cluster.preset("h100")


def calibration(cluster):
    return Calibration(cluster, cluster, None, {}, {}, ())


def test_options_have_defaults():
    assert read_options({}) == CompileOptions(scheduler="nimble", streams=4, budget_s=1.0)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"stream": 2}, "unknown option 'stream'"),
        ({"scheduler": "zzz"}, "unknown scheduler 'zzz'"),
        ({"scheduler": 3}, "scheduler must be a name or a function, not 3"),
        ({"streams": 0}, "streams must be a whole number from 1 to 8, not 0"),
        ({"streams": 9}, "from 1 to 8, not 9"),
        ({"streams": True}, "from 1 to 8, not True"),
        ({"streams": 2.0}, "from 1 to 8, not 2.0"),
        ({"streams": 2.5}, "from 1 to 8, not 2.5"),
        ({"streams": -1}, "from 1 to 8, not -1"),
        ({"streams": "4"}, "from 1 to 8, not '4'"),
        ({"streams": None}, "from 1 to 8, not None"),
        ({"scheduler": None}, "scheduler must be a name or a function, not None"),
        ({"scheduler": "no.such.module:function"}, "cannot import scheduler 'no.such.module:function'"),
        ({"scheduler": lambda: None}, r"is no function of \(graph, cluster, cost\)"),
        ({"budget_s": -1}, "budget_s must be a number that is not negative"),
        ({"budget_s": float("nan")}, "budget_s must be a number"),
        ({"budget_s": float("inf")}, "budget_s must be a number"),
        ({"budget_s": 10**400}, "budget_s must be a number"),
        ({"budget_s": "1"}, "budget_s must be a number"),
        ({"budget_s": True}, "budget_s must be a number"),
        ({"budget_s": None}, "budget_s must be a number"),
        ({"memory_limit": float("inf")}, "memory_limit must be a number"),
        ({"memory_limit": -1.0}, "memory_limit must be a number"),
        ({"mode": "fast"}, "unknown mode 'fast'"),
        ({"mode": 3}, "unknown mode '3'"),
        ({"mode": ["default"]}, "unknown mode"),
        ({"freezing": "no"}, "freezing must be True or False, not 'no'"),
        ({"calibration": "nothing.json"}, "nothing.json"),
        ({"calibration": 3}, "calibration must be a Calibration, a Cluster or a path"),
        ({"calibration": ss.Cluster.preset("a100", 2)}, "calibration has 2 devices; give one of one device"),
        ({"calibration": calibration(ss.Cluster.preset("a100", 2))}, "calibration has 2 devices"),
        ({3: 4}, "unknown option '3'"),
    ],
)
def test_wrong_names_and_values_are_errors(option, message):
    with pytest.raises(SimschedError, match=message):
        read_options(option)


def test_a_calibration_is_read_from_a_file(tmp_path):
    A100.save(tmp_path / "a100.json")
    assert read_options({"calibration": tmp_path / "a100.json"}).calibration == A100
    assert read_options({"calibration": A100, "streams": 8, "budget_s": 0}).streams == 8


def test_numbers_of_numpy_are_numbers():
    options = read_options({"streams": np.int64(2), "budget_s": np.float32(0.5), "memory_limit": np.int32(7)})
    assert (options.streams, options.budget_s, options.memory_limit) == (2, 0.5, 7.0)
    assert type(options.streams) is int


def test_options_come_from_three_places_and_agree():
    """Of `torch.compile` its mode and options, and those of a partial."""
    assert merge_options(None, None, {}) == {}
    merged = merge_options("default", {"streams": 2, "mode": "default"}, {"budget_s": 1.0, "streams": 2})
    assert merged == {"mode": "default", "streams": 2, "budget_s": 1.0}
    for given, message in (
        (("default", {"mode": "max-autotune"}, {}), "mode is given twice, as 'default' and as 'max-autotune'"),
        ((None, {"streams": 2}, {"streams": 3}), "streams is given twice, as 2 and as 3"),
        ((None, ["streams"], {}), "options must be a dictionary, not"),
    ):
        with pytest.raises(ArgumentError, match=message):
            merge_options(*given)


def test_a_calibration_is_of_the_device():
    """Where both are products of the table; of one that nobody knows it may be the closest preset."""
    require_device(None, H100)
    require_device(calibration(H100), H100)
    unknown = replace(A100, devices=(replace(A100.devices[0], model="my prototype"),))
    require_device(unknown, H100)
    require_device(H100, unknown)
    for wrong in (A100, calibration(A100)):
        with pytest.raises(ScheduleError, match="calibration is of a100, but the model runs on h100"):
            require_device(wrong, H100)
