"""Calibration against a device whose parameters are known: the simulator itself with others than the prior."""

import json
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from hidden_device import HIDDEN, PRIOR, HiddenDevice

import simsched as ss
from simsched.base.errors import CalibrationError, SimschedError
from simsched.calibration import Calibration, calibrate, recalibrate
from simsched.calibration.evidence import MeasuredRun
from simsched.calibration.training import random_schedule
from simsched.model.graph import Edge, Operator, OpGraph
from simsched.model.profile import MeasuredDevice, MeasuredOperator, Profile
from simsched.model.trace import measured_trace, spans_of
from workloads.registry import load

DRAWN = load("random:layered", n_ops=8, n_layers=3, n_edges=12)
GRAPH = OpGraph([replace(op, time=op.time / 10) for op in DRAWN.operators], DRAWN.edges)
"""Operators of some 10 to 400 us, of one kernel or two."""


@pytest.fixture(scope="module")
def microbenchmarks():
    return HiddenDevice().microbenchmarks()


def drawn_device(seed):
    """A device on which each operator takes 0.6 to 2 times what it says."""
    rng = np.random.default_rng(seed)
    return HiddenDevice(factor={name: float(rng.uniform(0.6, 2.0)) for name in GRAPH.names})


@pytest.fixture(scope="module")
def device():
    return drawn_device(3)


@pytest.fixture(scope="module")
def profile(device):
    return device.profile(GRAPH, in_situ=5, rng=1)


@pytest.fixture(scope="module")
def by_microbenchmarks(microbenchmarks):
    return calibrate(None, microbenchmarks, rng=0)


@pytest.fixture(scope="module")
def calibrated(profile):
    return calibrate(None, profile, rng=0)


def replayed(graph, device=None):
    return (device or HiddenDevice()).replay(ss.schedule(graph, PRIOR, "sequential"), repeats=2)


PAIR = "pair/compute-108-compute-108"
"""Kernels of one block of 256 threads an SM."""


def row(calibration, name):
    return next(found for found in calibration.parameters if found.name == name)


FOUND = (
    "launch",
    "barrier",
    "barrier_many",
    "graph_launch",
    "graph_node",
    "graph_issue",
    "graph_join",
    "crowd_latency",
    "wait",
    "hop",
    "gap",
)


@pytest.mark.parametrize("name", FOUND)
def test_overheads_are_found(by_microbenchmarks, name):
    """Costs of 0.6 to 21 us, told from chains, fans, stages and graphs of kernels that vary by 1 %."""
    found = row(by_microbenchmarks, name)
    assert found.identified
    assert found.value == pytest.approx(HIDDEN[name], rel=0.15)
    assert found.low <= HIDDEN[name] <= found.high


def test_costs_that_a_device_does_not_have_are_found_to_be_none():
    """Nodes of graphs that start together, joins that cost nothing, crowds in which kernels start as fast as alone.

    What is left is less than the tenth of the prior, and the interval reaches to none. Barriers of any number of
    streams cost the same 14 us.
    """
    free = {"graph_issue": 0.0, "graph_join": 0.0, "crowd_latency": 0.0, "barrier_many": HIDDEN["barrier"]}
    found = HiddenDevice(truth=PRIOR.replace_devices(**HIDDEN | free)).microbenchmarks()
    only = replace(found, runs=tuple(run for run in found.runs if run.name.startswith("overhead/")))
    calibration = calibrate(None, only)
    for name, most in (("graph_issue", 0.04), ("graph_join", 0.1), ("crowd_latency", 0.1)):
        cost = row(calibration, name)
        assert cost.identified
        assert cost.value <= most
        assert cost.low == 0.0
    assert row(calibration, "barrier_many").value == pytest.approx(14.0, rel=0.1)


def test_runs_without_graphs_say_nothing_of_graphs(microbenchmarks):
    """Costs that only captured graphs have keep their priors, and a note says so."""
    runs = [run for run in microbenchmarks.runs if run.name.startswith(("overhead/launch", "overhead/fan"))]
    found = calibrate(None, replace(microbenchmarks, runs=tuple(runs)))
    for name in ("graph_issue", "graph_join", "graph_node", "barrier_many", "crowd_latency"):
        cost = row(found, name)
        assert (cost.value, cost.identified) == (getattr(PRIOR.devices[0], name), False)
        assert cost.note == "no run depends on it"


def test_what_kernels_share_is_found(by_microbenchmarks):
    """29 warps saturate an SM, DRAM moves 1.25 TB/s, compute slows compute by 12 %, 20 % of slots interleave."""
    assert row(by_microbenchmarks, "interleave").value < 0.4
    for name, true, away in (
        ("saturating_warps", 29.0, 0.05 * 29.0),
        ("bandwidth", 1.25e6, 0.08 * 1.25e6),
        ("interference.compute.compute", 0.12, 0.03),
    ):
        found = row(by_microbenchmarks, name)
        assert found.value == pytest.approx(true, abs=away)
        assert found.low <= true <= found.high


def test_what_nothing_was_measured_of_keeps_its_prior(by_microbenchmarks):
    """One device copies nothing, so the cost of a copy stays 4.5 us though it is 6; links there are none of."""
    copy = row(by_microbenchmarks, "copy")
    assert (copy.value, copy.identified) == (PRIOR.devices[0].copy, False)
    assert "nothing was measured" in copy.note
    assert by_microbenchmarks.cluster.devices[0].copy == 4.5
    assert not any(found.name.startswith("link.") for found in by_microbenchmarks.parameters)


def test_microbenchmarks_come_true(by_microbenchmarks):
    """With what was found, every microbenchmark is predicted within 5 %, and half of them within 1 %."""
    errors = [abs(found.error) for found in by_microbenchmarks.residuals]
    assert len(errors) > 60
    assert max(errors) < 0.05
    assert np.median(errors) < 0.01


def test_transfers_tell_of_links():
    """Two devices, a link of 40 GB/s and 4 us instead of 52 GB/s and 2 us."""
    prior = ss.Cluster.preset("a40", n_gpus=2)
    truth = prior.replace_links(bandwidth=40e3, latency=4.0).replace_devices(copy=7.0)
    runs = HiddenDevice(prior, truth, noise=0.0).microbenchmarks()
    only = replace(runs, runs=tuple(run for run in runs.runs if run.name.startswith(("overhead/l", "transfer/"))))
    found = calibrate(None, only)
    assert row(found, "link.bandwidth").value == pytest.approx(40e3, rel=0.03)
    assert row(found, "link.latency").value == pytest.approx(4.0, rel=0.2)
    assert row(found, "copy").value == pytest.approx(7.0, rel=0.2)
    assert found.cluster.route("gpu0", "gpu1").bandwidth == row(found, "link.bandwidth").value


def test_copies_that_take_turns_are_no_faster_link():
    """Four of 16 MB on a link of 40 GB/s: all end after 1600 us, shared or one after the other, of 400 us each."""
    prior = ss.Cluster.preset("a40", n_gpus=2).replace_devices(copy_engines=4)
    device = HiddenDevice(prior, prior.replace_links(bandwidth=40e3), noise=0.0)
    found = device.microbenchmarks()
    plan = next(run for run in found.runs if run.name == "transfer/4-at-once")
    launches, copies = spans_of(plan.trace)
    assert np.ptp(copies[:, 1]) < 100.0  # the simulator shares
    turns = copies[:, :1].min() + 400.0 * np.array([[0, 1], [1, 2], [2, 3], [3, 4]])
    trace = measured_trace(plan.program, prior, launches, turns)
    only = (replace(plan, trace=trace), *(run for run in found.runs if run.name.startswith("transfer/one")))
    assert row(calibrate(None, replace(found, runs=only)), "link.bandwidth").value == pytest.approx(40e3, rel=0.02)


def test_a_fit_leaves_a_plateau(microbenchmarks):
    """Two kernels of 8 warps an SM take 1.39 times as long as one: 11.5 warps saturate an SM, far from the 24 believed.

    From 16 warps on neither slows the other: where the fit begins nothing depends on it.
    """
    truth = PRIOR.replace_devices(saturating_warps=11.5)
    only = tuple(run for run in HiddenDevice(PRIOR, truth, noise=0.0).microbenchmarks().runs if run.name == PAIR)
    found = row(calibrate(None, replace(microbenchmarks, runs=only)), "saturating_warps")
    assert found.identified
    assert found.value == pytest.approx(11.5, rel=0.02)


def test_what_no_value_explains_is_contradicted(microbenchmarks):
    """The same two kernels, said to have taken 8 times as long as one."""
    run = next(run for run in microbenchmarks.runs if run.name == PAIR)
    together = np.array([not name.startswith("alone") for name in run.program.graph.names])[run.program.launches.op]
    launches, _ = spans_of(run.trace)
    launches[together, 1] += 7 * np.diff(launches[~together]).mean()
    slow = replace(run, trace=measured_trace(run.program, PRIOR, launches))
    found = calibrate(None, replace(microbenchmarks, runs=(slow,)))
    contradicted = [each.name for each in found.parameters if each.note.startswith("contradicted by runs")]
    assert contradicted
    assert any("microbenchmarks are missed by more than 10 %" in line for line in found.warnings())


def test_rates_above_the_devices_own_are_warned_of(by_microbenchmarks):
    """The a100 has 1.555 TB/s: 1.25 are found. Said to have one, it is warned of; no microbenchmark is far off."""
    assert by_microbenchmarks.warnings() == []
    rows = [each._replace(prior=1e6) if each.name == "bandwidth" else each for each in by_microbenchmarks.parameters]
    (line,) = replace(by_microbenchmarks, parameters=tuple(rows)).warnings()
    assert line.startswith("bandwidth is fitted as 1.2")
    assert line.endswith("but the device is said to have 1e+06")


def test_times_of_operators_are_found_in_place(device, calibrated):
    """Each operator takes 0.6 to 2 times what it says; all are found within 3 %, on average within 1 %."""
    errors = [abs(calibrated.times[op.name] / device.cost(op, None) - 1) for op in calibrated.graph.operators]
    assert max(errors) < 0.03
    assert np.mean(errors) < 0.01


def test_error_is_that_of_runs_no_fit_has_seen(calibrated):
    held_out = [found for found in calibrated.residuals if found.role == "held-out"]
    assert calibrated.error.runs == len(held_out) == sum(calibrated.held_out) >= 1
    assert calibrated.error.mean == np.mean([abs(found.error) for found in held_out])
    assert calibrated.error.mean < 0.04


def again(made):
    """What a file of something holds."""
    return type(made).from_dict(json.loads(json.dumps(made.to_dict())))


def test_held_out_runs_and_generators_change_nothing(profile, calibrated):
    """Without the runs that were held out, by another generator and from a file, the same is found."""
    unseen = {found.name for found in calibrated.residuals if found.role == "held-out"}
    seen = replace(profile, runs=tuple(run for run in profile.runs if run.name not in unseen))
    found = calibrate(None, again(seen), rng=1, held_out=0.0)
    assert dict(found.times) == dict(calibrated.times)
    assert found.error is None
    assert found.parameters == calibrated.parameters
    assert again(calibrated).to_dict() == calibrated.to_dict()


def streams(device, n, rng):
    """Runs of the graph on several streams."""
    runs = device.profile(GRAPH, in_situ=n, rng=rng).runs
    return [run for run in runs if run.name.startswith("in-situ/streams")]


def test_recalibration_lowers_the_error(device):
    """With one training schedule, then with six schedules more: what others take is predicted better.

    On average over two devices: where one schedule happens to say enough, six more say nothing new.
    """
    before, after = [], []
    for one in (device, drawn_device(4)):
        scarce = calibrate(None, one.profile(GRAPH, in_situ=1, rng=5), held_out=0.0)
        better = recalibrate(scarce, streams(one, 6, 6))
        assert len(better.runs) == len(scarce.runs) + 6
        for run in streams(one, 6, 8):
            for errors, found in ((before, scarce), (after, better)):
                errors.append(abs(ss.simulate(run.program, found.cluster, found).makespan / run.median - 1))
    assert np.mean(after) < np.mean(before)


def test_recalibration_does_not_raise_the_error(device, calibrated):
    """Two runs said to have taken twice as long: a fit to them misses what is held out, and is not taken."""
    slow = [replace(run, latency=tuple(2 * us for us in run.latency)) for run in streams(device, 2, 6)]
    found = recalibrate(again(calibrated), [again(run) for run in slow])  # all of it from files
    assert len(found.runs) == len(calibrated.runs) + 2
    assert found.error.mean <= calibrated.error.mean + 2 * max(run.noise for run in found.runs)


def test_a_calibration_is_a_cost_model(calibrated):
    """Measured operators take their measured time, asked for as they were or as they ran; others by their kind."""
    device = calibrated.cluster.devices[0]
    ran, said = calibrated.graph["op0"], GRAPH["op0"]
    assert calibrated(ran, device) == calibrated(said, device) == calibrated.times["op0"]
    assert calibrated(replace(said, time=said.time * 3), device) == 3 * said.time  # another of that name
    merged = Operator("op0+op1", kind="synth", flops=1e9)
    scale = calibrated.scales["synth"]
    assert calibrated(merged, device) == pytest.approx(scale * ss.roofline(merged, device))


def test_times_by_columns_are_those_of_calls(calibrated):
    device = calibrated.cluster.devices[0]
    for graph in (GRAPH, calibrated.graph, calibrated.apply(GRAPH)):
        rows = np.array([3, 0, 7])
        found = calibrated.operator_times(graph, device, rows)
        assert found.tolist() == [calibrated(graph.operator(i), device) for i in rows.tolist()]


def test_an_applied_graph_is_the_one_that_ran(calibrated):
    """Kernels, FLOP, bytes and kind are those of the realised operators, times the fitted ones; twice is once."""
    found = calibrated.apply(GRAPH)
    assert found.names == GRAPH.names
    for op in found.operators:
        ran = calibrated.graph[op.name]
        assert (op.kernels, op.flops, op.nbytes, op.kind) == (ran.kernels, ran.flops, ran.nbytes, "synth")
        assert op.time == calibrated.times[op.name]
    assert calibrated.apply(found) is found
    assert calibrated.apply(calibrated.apply(GRAPH)) is calibrated.apply(GRAPH)


OTHER = load("random:layered", n_ops=8, n_layers=4, seed=1)
"""Operators of the same names, op0 to op7, with other times."""


def test_names_alone_make_no_measured_operator(device, calibrated):
    assert OTHER.names == GRAPH.names
    for graph in (OTHER, device.realise(OTHER)):
        assert not any(calibrated.is_measured(op) for op in graph.operators)
    assert all(calibrated.is_measured(op) for op in GRAPH.operators)
    assert not calibrated.is_measured(replace(GRAPH["op0"], time=None))
    ran = calibrated.graph["op0"]  # its FLOP may be other ones in another process, or its time fitted, not both
    assert calibrated.is_measured(replace(ran, flops=1.1 * ran.flops))
    assert calibrated.is_measured(replace(ran, time=2 * ran.time))
    assert not calibrated.is_measured(replace(ran, flops=1.1 * ran.flops, time=2 * ran.time))
    assert not calibrated.is_measured(replace(GRAPH["op0"], input_shapes=((8, 8),)))


def test_runs_of_a_graph_with_the_same_names_are_refused(device, profile, calibrated):
    """Of one that reads from others, and of one that takes longer."""
    longer = OpGraph([replace(op, time=2 * op.time) for op in GRAPH.operators], GRAPH.edges)
    for graph, words in ((OTHER, "other operators read from each other"), (longer, "operator 'op0' is another one")):
        replay = replayed(graph, device)
        with pytest.raises(CalibrationError, match=f"the profile is of another graph than .*: {words}"):
            calibrate(None, profile, graph)
        with pytest.raises(CalibrationError, match=f"run 'sequential' is of another graph than .*: {words}"):
            calibrate(None, (profile, replace(profile, runs=(replay,), graph=None)))
        with pytest.raises(CalibrationError, match=words):
            recalibrate(calibrated, [replay])


def test_foreign_operators_are_left_but_for_their_time(calibrated):
    other = OpGraph([Operator("x", time=12.0), Operator("y", kind="synth", flops=1e9)], [Edge("x", "y", 8.0)])
    found = calibrated.apply(other)
    assert found["x"] == other["x"]
    assert found["y"].time == calibrated(other["y"], calibrated.cluster.devices[0])
    assert found.edges == other.edges


def test_one_stream_says_nothing_of_sharing(profile):
    """From runs on one stream times are found, and no slot, DRAM or interference: all of it keeps its prior."""
    alone = tuple(run for run in profile.runs if run.name.startswith("in-situ/sequential"))
    found = calibrate(None, replace(profile, runs=alone))
    assert found.error is None
    for name in ("saturating_warps", "bandwidth", "interleave", "interference.compute.compute", "hop"):
        assert not row(found, name).identified
        assert row(found, name).value == row(found, name).prior


def test_a_profile_without_runs_gives_times(calibrated):
    """From a profiler's trace there are times of operators and nothing else: they are used, nothing is fitted."""
    graph = OpGraph([Operator("a", kind="conv", flops=1e9), Operator("b", kind="conv", flops=1e9)])
    measured = Profile((MeasuredOperator("a", (90.0, 100.0, 300.0)),), graph=graph)
    found = calibrate(PRIOR, measured, graph)
    assert found(graph["a"], PRIOR.devices[0]) == 100.0
    assert found(graph["b"], PRIOR.devices[0]) == pytest.approx(100.0)  # the same work at the scale of its kind
    assert not any(parameter.identified for parameter in found.parameters)


REFUSED = {
    "operator 'op0' is not in it": lambda p, _: calibrate(None, p, OpGraph([Operator("x")])),
    "no operator 'z'": lambda p, _: calibrate(None, p, OpGraph([*GRAPH.operators, Operator("z")])),
    "measured on gpu0 (a100, 108 SMs), not on gpu0 (v100": lambda p, _: calibrate(ss.Cluster.preset("v100"), p),
    "give a cluster": lambda p, _: calibrate(None, replace(p, cluster=None)),
    "'tiny' with 4 SMs": lambda p, _: calibrate(PRIOR, replace(p, cluster=None, device=MeasuredDevice("tiny", sms=4))),
    "nothing to fit": lambda p, _: calibrate(None, replace(p, runs=(), graph=None)),
    "no profile": lambda *_: calibrate(None, ()),
    "held_out must be in [0, 1), not 1.0": lambda p, _: calibrate(None, p, held_out=1.0),
    "held_out must be in [0, 1), not nan": lambda p, _: calibrate(None, p, held_out=float("nan")),
    "operator 'x' is not in it": lambda _, c: recalibrate(c, [replayed(OpGraph([Operator("x", time=5.0)]))]),
    "no replays": lambda _, c: recalibrate(c, []),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(profile, calibrated, words):
    with pytest.raises(CalibrationError) as caught:
        REFUSED[words](profile, calibrated)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_says_what_it_is(calibrated):
    assert repr(calibrated).startswith("Calibration('a100', 8 operators")
    table = calibrated.table()
    assert table[0] == ("parameter", "value", "prior", "95 %", "note")
    assert {len(line) for line in table} == {5}
    assert len(table) == 1 + len(calibrated.parameters)
    assert calibrated.provenance["device"] == "hidden a100"
    assert calibrated.provenance["runs"] == "10"


BROKEN = {
    "time of a stranger": (lambda d: d["times"].update(stranger=5.0), "'stranger', which is not in the graph"),
    "no time at all": (lambda d: d["runs"][0].update(latency=[0.0]), "is said to have taken no time"),
    "unknown parameter": (lambda d: d["parameters"][0].update(name="speed"), "name must be one of launch"),
    "half a run": (lambda d: d["runs"][0]["launches"].pop(), "start and end of"),
    "broken program": (lambda d: d["runs"][0]["argument"].pop(), "one row per instruction"),
    "held out": (lambda d: d["held_out"].pop(), "held_out must say of each of the"),
    "runs without a graph": (lambda d: d.update(graph=None), "field 'graph' is missing"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused_in_one_line(calibrated, case):
    breaks, words = BROKEN[case]
    data = json.loads(json.dumps(calibrated.to_dict()))
    breaks(data)
    with pytest.raises(SimschedError) as caught:
        Calibration.from_dict(deepcopy(data), "h200.json")
    assert words in str(caught.value)
    assert str(caught.value).startswith("h200.json")
    assert "\n" not in str(caught.value)


def test_many_runs_make_a_small_file():
    """40 runs of 120 operators on six streams stay below 2 MB."""
    device = HiddenDevice(noise=0.0)
    graph = device.realise(load("random:layered", n_ops=120, n_layers=12, n_edges=240, time=(5.0, 20.0)))
    plan = random_schedule(graph, PRIOR, rng=0, streams=6, execution="events")
    runs = (MeasuredRun.of(device.replay(plan, repeats=6)),) * 40
    found = Calibration(PRIOR, PRIOR, graph, {}, {}, (), (), runs=runs, held_out=(False,) * 40)
    assert len(json.dumps(found.to_dict())) < 2_000_000
