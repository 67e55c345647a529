"""Workloads by name and by the texts of the command line."""

import pytest

import workloads
from simsched.base.errors import FileError, GraphError, SimschedError, UnknownNameError
from simsched.model.graph import Operator, OpGraph
from workloads import WORKLOADS, from_spec, load, names, random_layered
from workloads.models.inception_v3 import inception_v3


def test_names():
    assert names() == list(WORKLOADS)
    assert WORKLOADS["random:layered"] is random_layered
    assert "inception_v3" in WORKLOADS
    assert "vgg" not in WORKLOADS
    assert not hasattr(workloads, "nonsense")
    assert len(WORKLOADS) == len(set(names())) == 34


def test_load():
    assert load("inception_v3", batch=2) == inception_v3(batch=2)
    assert load("random:layered") == random_layered(rng=0)
    assert load("random:layered", n_ops=30, n_layers=5, seed=3) == random_layered(30, 5, rng=3)
    with pytest.raises(GraphError, match="has no parameter 'bach'; known are: batch, image_size, dtype"):
        load("inception_v3", bach=2)


def test_spec_with_parameters():
    assert from_spec("inception_v3,batch=4,image_size=331,dtype=fp16") == inception_v3(
        batch=4, image_size=331, dtype="fp16"
    )
    assert from_spec("random:layered,n_ops=60,n_layers=8,n_edges=130,comm_ratio=.5,seed=2") == random_layered(
        60, 8, 130, comm_ratio=0.5, rng=2
    )
    assert from_spec(" random:layered , n_ops = 60 ") == random_layered(60, rng=0)


def test_spec_with_ranges_and_none():
    spec = "random:layered,n_edges=none,time=1e2:2e2,utilization=none,min_transfer=5"
    assert from_spec(spec) == random_layered(rng=0, time=(100.0, 200.0), utilization=None, min_transfer=5.0)


def test_defaults_apply_where_the_workload_has_them():
    """The spec wins over the default, and a network has no use for a seed."""
    assert from_spec("random:layered,n_ops=40", n_ops=50, seed=9) == random_layered(40, rng=9)
    assert from_spec("inception_v3", batch=2, seed=9) == inception_v3(batch=2)


def test_json_file(tmp_path):
    graph = OpGraph([Operator("a", time=1.0)], name="one")
    path = tmp_path / "odd, name.json"
    graph.save(str(path))
    assert from_spec(str(path), batch=2) == load(str(path)) == graph
    with pytest.raises(GraphError, match="has no parameter 'batch'; known are: none"):
        from_spec(f"{path},batch=2")
    with pytest.raises(FileError, match=r"cannot read missing\.json"):
        from_spec("missing.json")


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (
            "inceptoin",
            UnknownNameError,
            "unknown workload 'inceptoin'; closest of 34 known: inception_v3, tiny_inception, .*; or give a path that "
            "ends in .json, .onnx",
        ),
        ("inception_v3,", GraphError, "'' is not of the form parameter=value"),
        ("inception_v3,bach=4", GraphError, "has no parameter 'bach'; known are: batch, image_size, dtype"),
        ("random:layered,rng=4", GraphError, "has no parameter 'rng'; known are: n_ops, .*, seed"),
        ("inception_v3,batch=4,batch=5", GraphError, "parameter 'batch' is given twice"),
        ("inception_v3,batch=four", GraphError, "batch must be a whole number, not 'four'; its parameters are: batch,"),
        ("inception_v3,dtype=", GraphError, "dtype must be a text, not ''"),
        ("random:layered,comm_ratio=nan", GraphError, "comm_ratio must be a number or none, not 'nan'"),
        ("random:layered,n_edges=few", GraphError, "n_edges must be a whole number or none, not 'few'"),
        ("random:layered,time=5:x", GraphError, "time must be a range low:high, not '5:x'"),
        ("graph.json,batch=2", FileError, "cannot read graph.json"),
    ],
)
def test_bad_specs(spec, error, message):
    with pytest.raises(error, match=message) as caught:
        from_spec(spec)
    assert isinstance(caught.value, SimschedError)


def test_numbers_too_long_to_print():
    """Python refuses to print more than 4,300 digits."""
    with pytest.raises(GraphError, match="batch must be at least 1, not a number of thousands of digits"):
        load("inception_v3", batch=-(10**5000))
    with pytest.raises(GraphError, match="time must be a number, not a number of thousands of digits"):
        Operator("a", time=10**5000)
