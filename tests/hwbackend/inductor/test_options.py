"""Options of the backend of `torch.compile`: names and values."""

import pytest

import simsched as ss
from hwbackend.inductor.options import CompileOptions, read_options
from simsched.base.errors import SimschedError

A100 = ss.Cluster.preset("a100")


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
        ({"budget_s": -1}, "budget_s must be a number that is not negative"),
        ({"budget_s": float("nan")}, "budget_s must be a number"),
        ({"budget_s": "1"}, "budget_s must be a number"),
        ({"memory_limit": float("inf")}, "memory_limit must be a number"),
        ({"mode": "fast"}, "unknown mode 'fast'"),
        ({"freezing": "no"}, "freezing must be True or False, not 'no'"),
        ({"calibration": "nothing.json"}, "nothing.json"),
        ({"calibration": 3}, "calibration must be a Calibration, a Cluster or a path"),
        ({"calibration": ss.Cluster.preset("a100", 2)}, "give a cluster of one device"),
    ],
)
def test_wrong_names_and_values_are_errors(option, message):
    with pytest.raises(SimschedError, match=message):
        read_options(option)


def test_a_calibration_is_read_from_a_file(tmp_path):
    A100.save(tmp_path / "a100.json")
    assert read_options({"calibration": tmp_path / "a100.json"}).calibration == A100
    assert read_options({"calibration": A100, "streams": 8, "budget_s": 0}).streams == 8
