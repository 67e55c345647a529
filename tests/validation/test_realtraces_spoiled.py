"""Cuts of traces, by hand; and the command on a small trace. Times in us."""

import json
import random

import pytest
from kineto_traces import LaunchTrace

from validation import realtraces_spoiled
from validation.realtraces_spoiled import busy_moment, cut, first_step_error


@pytest.fixture
def ahead(tmp_path):
    """A step whose host calls for ten kernels of 100 us at once."""
    trace = LaunchTrace(tmp_path / "ahead.json")
    trace.mark("ProfilerStep#3", 0.0, 2000.0)
    for k in range(10):
        trace.launch(6.0 * k, 5, 7 + 101.0 * k, 100)
    return json.loads(trace.text()), trace.path


def test_a_cut_drops_calls_before_it(ahead):
    """At 200 after the step began all calls are over, and two kernels have begun: eight are left, without calls."""
    document, path = ahead
    begin = next(event["ts"] for event in document["traceEvents"] if event["name"] == "ProfilerStep#3")
    events = cut(document, begin + 200)["traceEvents"]
    assert [event["cat"] for event in events].count("kernel") == 8
    assert [(event["ts"] - begin, event["dur"]) for event in events if event["cat"] == "user_annotation"] == [
        (200, 1800)
    ]
    assert "cuda_runtime" not in [event["cat"] for event in events]
    path.write_text(json.dumps(cut(document, begin + 30)), encoding="utf-8")
    assert first_step_error(path) == pytest.approx((0.0, 0.0), abs=0.01)


def test_a_moment_is_between_a_call_and_its_kernel(ahead):
    """The first kernel does not wait; the last one is called for at 54 and starts at 916."""
    document, _ = ahead
    begin = next(event["ts"] for event in document["traceEvents"] if event["name"] == "ProfilerStep#3")
    moments = [busy_moment(document, random.Random(seed)) - begin for seed in range(40)]
    assert 12 <= min(moments) < max(moments) <= 916
    idle = document | {"traceEvents": [event for event in document["traceEvents"] if event["cat"] != "kernel"]}
    assert busy_moment(idle, random.Random(0)) is None


def test_command(ahead, tmp_path, capsys):
    document, path = ahead
    path.write_text(json.dumps(document), encoding="utf-8")
    assert realtraces_spoiled.main([str(tmp_path), "--cuts", "2", "--mutants", "14"]) == 0
    text = capsys.readouterr().out
    assert text.index("First step of a recording") < text.index("| dropped | 2 | 0 | 0 |") < text.index("json.loads")
    assert realtraces_spoiled.main([str(tmp_path / "none")]) == 2
    assert "none: no such folder" in capsys.readouterr().err
