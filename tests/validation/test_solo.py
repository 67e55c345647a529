"""Operators by name, and errors against what a device took, on a file made by hand."""

import gzip
import json
import math
import sys

import pytest

from simsched.model.cluster import Cluster
from simsched.model.graph import Work
from validation.solo import Errors, errors, faster_steps, launches_of, main, rows_of, spec_of, works_of

H100 = Cluster.preset("h100").devices[0]


def test_names_say_works():
    """A 3 x 3 convolution with stride 2 of 4 images of 56 x 56: 28 x 28 pixels each; 64 / 2 channels x 9 taps."""
    spec = spec_of("conv/fp16-nhwc/4x64x56->96 k3 s2 p1 g2")
    assert (spec.kind, spec.dtype) == ("conv-nhwc-grouped", "fp16")
    pixels = 4 * 28 * 28
    expected = Work(
        "convolution",
        "channels_last",
        2.0 * pixels * 96 * 288,
        4 * 64 * 56 * 56 * 2,
        96 * 288 * 2,
        pixels * 96 * 2,
        2,
        pixels,
        48,
        288,
        9,
        4 * 64 * 56 * 56,
        4,
    )
    assert works_of(spec) == [expected]
    assert works_of(spec_of("embedding_bag/fp32/1000x64[7x5]"))[0].rows == 35


@pytest.mark.parametrize("name", ["linear/fp32/64x512x512", "relu/fp16/1048576", "conv/fp16/1x64x56->64 k3 s1 p1 g1"])
def test_errors_are_logarithms(tmp_path, capsys, monkeypatch, name):
    """Measured twice as long as modelled, edges and gaps aside: ln(1 / 2) = -.69 warm; the same cold: 0."""
    warm, cold = (launches_of(spec_of(name), H100, state) for state in (False, True))
    us, cold_us = (sum(launch.time for launch in launches) for launches in (warm, cold))
    twice = 2 * (us + 0.6 + 0.2 * len(warm))
    solo = {name: {"warm_us": [0, twice, 0, 0], "cold_us": [cold_us] * 3}, "relu/fp32/4": {"error": "none"}}
    (row,) = rows_of(solo, H100)
    assert row.warm_error == pytest.approx(-math.log(2))
    assert row.cold_error == pytest.approx(0)
    path = tmp_path / "truth.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"solo": solo}).encode()))
    monkeypatch.setattr(sys, "argv", ["solo", str(path), "--fold", str(row.spec.fold), "--worst", "1"])
    main()
    shown = capsys.readouterr().out
    assert " 0.693  -0.69" in shown
    assert name.split("/", 2)[2] + " -0.69" in shown


def test_means_and_steps():
    """|-.1|, |.3|: .2 on average, +.1 of bias. Twice the rows take no less time: no step of one is faster."""
    assert errors([-0.1, 0.3, None]) == pytest.approx(Errors(0.2, 0.1, 0.3))
    rows = list(rows_of({f"linear/fp16/{m}x512x512": {} for m in (64, 128, 256)}, H100))
    assert faster_steps(rows) == (0, 3)
    assert faster_steps([row._replace(warm=1 / row.warm) for row in rows])[1] == 3
