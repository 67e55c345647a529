"""Workloads by name and by the texts of the command line."""

from inspect import signature

import numpy as np
import pytest

import workloads
from simsched.base.errors import FileError, GraphError, UnknownNameError
from simsched.model.graph import Operator, OpGraph
from workloads import WORKLOADS, from_spec, load, names, random_layered
from workloads.models.inception_v3 import inception_v3


def test_names():
    assert names() == list(WORKLOADS)
    assert WORKLOADS["random:layered"] is random_layered
    assert ("inception_v3" in WORKLOADS, "vgg" in WORKLOADS) == (True, False)
    assert not hasattr(workloads, "nonsense")
    assert len(WORKLOADS) == len(set(names())) == 35


def test_load():
    assert load("inception_v3", batch=2) == inception_v3(batch=2)
    assert load("random:layered") == random_layered(rng=0)
    assert load("random:layered", n_ops=30, n_layers=5, seed=3) == random_layered(30, 5, rng=3)
    with pytest.raises(GraphError, match="has no parameter 'bach'; known are: batch, image_size, dtype"):
        load("inception_v3", bach=2)


@pytest.mark.parametrize(
    ("spec", "defaults", "expected"),
    [
        ("inception_v3,batch=4,image_size=331,dtype=fp16", {}, inception_v3(batch=4, image_size=331, dtype="fp16")),
        (
            "random:layered,n_ops=60,n_layers=8,n_edges=130,comm_ratio=.5,seed=2",
            {},
            random_layered(60, 8, 130, comm_ratio=0.5, rng=2),
        ),
        (" random:layered , n_ops = 60 ", {}, random_layered(60, rng=0)),
        (
            "random:layered,n_edges=none,time=1e2:2e2,utilization=none,min_transfer=5",
            {},
            random_layered(rng=0, time=(100.0, 200.0), utilization=None, min_transfer=5.0),
        ),
        # the spec wins over the default, and a network has no use for a seed
        ("random:layered,n_ops=40", {"n_ops": 50, "seed": 9}, random_layered(40, rng=9)),
        ("inception_v3", {"batch": 2, "seed": 9}, inception_v3(batch=2)),
    ],
)
def test_specs(spec, defaults, expected):
    assert from_spec(spec, **defaults) == expected


def test_json_file(tmp_path):
    graph = OpGraph([Operator("a", time=1.0)], name="one")
    path = tmp_path / "odd, name.json"
    graph.save(str(path))
    assert from_spec(str(path), batch=2) == load(str(path)) == graph
    with pytest.raises(GraphError, match="has no parameter 'batch'; known are: none"):
        from_spec(f"{path},batch=2")
    with pytest.raises(FileError, match=r"cannot read missing\.json"):
        from_spec("missing.json,batch=2")


def test_unknown_workload():
    message = "unknown workload 'inceptoin'; closest of 35 known: inception_v3, .*; or give a path that ends in .json, "
    with pytest.raises(UnknownNameError, match=message):
        from_spec("inceptoin")


REFUSED = {
    "inception_v3,": "'' is not of the form parameter=value",
    "inception_v3,bach=4": "has no parameter 'bach'; known are: batch, image_size, dtype",
    "random:layered,rng=4": "has no parameter 'rng'; known are: n_ops, .*, seed",
    "inception_v3,batch=4,batch=5": "parameter 'batch' is given twice",
    "inception_v3,batch=four": "batch must be a whole number, not 'four'; its parameters are: batch,",
    "inception_v3,dtype=": "dtype must be a text, not ''",
    "random:layered,comm_ratio=nan": "comm_ratio must be a number or none, not 'nan'",
    "random:layered,n_edges=few": "n_edges must be a whole number or none, not 'few'",
    "random:layered,time=5:x": "time must be a range low:high, not '5:x'",
    # networks
    "inception_v3,batch=1000000000": r"an input of shape \(1000000000, 3, 299, 299\) is more than any device",
    "inception_v3,device=h100": "no option 'device' any more: launch shapes follow the device that is simulated; name",
    "deepfm,fields=0": "fields must be a whole number from 1 to 100,000, not 0",
    "bert_base,sequence_length=513": "sequence_length must be at most 512, not 513",
    "rnntc_sru,sequence_length=10001": "sequence_length must be at most 10000, not 10001",
    "randwire,channels=7": "channels must be even, not 7",
    "randwire,seed=-1": "seed must be at least 0, not -1",
    # random graphs
    "random:layered,mode=both": "mode must be one of paper, impl, not 'both'",
    "random:layered,draws=whole,time=1.01:1.09": "time has no steps of 0.1 from 1.01 to 1.09",
    "random:layered,n_layers=22,mode=impl": "take n_ops of more than 242, not 200, or layer_sizes must be",
    "random:layered,n_ops=83,n_layers=4,layer_sizes=rounds": "40 operators have no room for n_ops of more than 82",
    "random:layered,n_ops=100000,n_edges=1000000000": "n_edges must be at most 200000000, not 1000000000",
    "random:layered,n_ops=13": r"n_layers must be at most 13 \(n_ops: no layer is empty\), not 14",
    "random:layered,n_edges=100": r"n_edges must be at least 3\d\d, which connect the layers of this seed, not 100",
    "random:layered,n_edges=1000000": r"n_edges must be at most 1\d{4}, which the layers of this seed allow, not 1",
    "random:layered,comm_ratio=1e308": "edge op0 -> op1: transfer must be finite and not negative, not inf",
    "random:erdos-renyi,n_edges=3,edge_probability=.5": "give n_edges or edge_probability, not both",
    "random:erdos-renyi,n_ops=10,n_edges=46": "n_edges must be at most 45, the pairs that there are, not 46",
    "random:watts-strogatz,neighbours=3": "neighbours must be even, half of them on either side, not 3",
    "random:watts-strogatz,n_ops=10,neighbours=6": "neighbours must be at most 5, half the ring, not 6",
    "random:watts-strogatz,rewiring=-0.1": r"rewiring must be in \[0, 1\], not -0.1",
    "random:fft,points=12": "points must be a power of 2, not 12",
    "random:wavefront,neighbours=4": "neighbours must be a whole number from 2 to 3, not 4",
}


@pytest.mark.parametrize("spec", REFUSED)
def test_one_line_says_what_is_wrong(spec):
    with pytest.raises(GraphError, match=REFUSED[spec]):
        from_spec(spec)


def test_numbers_too_long_to_print():
    """Python refuses to print more than 4,300 digits."""
    with pytest.raises(GraphError, match="batch must be at least 1, not a number of thousands of digits"):
        load("inception_v3", batch=-(10**5000))
    with pytest.raises(GraphError, match="time must be a number, not a number of thousands of digits"):
        Operator("a", time=10**5000)


NETWORKS = [name for name in WORKLOADS if not name.startswith("random:")]
NEITHER = (True, -1, 1.5, float("nan"), b"x", [], {}, -(10**5000), object())  # a size of, nor the name of, anything


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_wrong_is_named(name):
    for parameter in signature(WORKLOADS[name]).parameters:
        for value in NEITHER if parameter != "graphs" else ():  # a path, for the reader to refuse
            with pytest.raises(GraphError, match=parameter):
                load(name, **{parameter: value})


@pytest.mark.parametrize("granularity", ["unit", "operator"])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet50", {"batch": 3, "image_size": 100}),
        ("t5_small_encoder", {"batch": 2, "sequence_length": 100}),
        ("deepfm", {"batch": 100, "rows": 100, "factors": 100, "hidden": 100}),
        ("rnntc_sru", {"layers": 2, "sequence_length": 2, "features": 100, "classes": 100}),
    ],
)
def test_narrow_numbers_do_not_overflow(name, parameters, granularity):
    """100 of 8 bits times anything from 2 on would."""
    narrow = {key: np.int8(value) for key, value in parameters.items()}
    assert load(name, **narrow, granularity=granularity) == load(name, **parameters, granularity=granularity)
