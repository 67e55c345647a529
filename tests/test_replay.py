"""Measured runs as data: traces from measured times, and schedules over another graph; files are in `test_schemas`."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import made, placements
from strategies import clusters, graphs

import simsched as ss
from simsched.base.errors import BackendError, CostError, FormatError, ProgramError, ScheduleError
from simsched.calibration.evidence import times_of
from simsched.calibration.training import random_schedule
from simsched.model import EXECUTIONS, Cluster, Kernel, Operator
from simsched.model.profile import MeasuredOperator, Profile, Replay
from simsched.model.trace import measured_trace


def as_measured(trace):
    return measured_trace(trace.program, trace.cluster, *times_of(trace)[1:])


def fork():
    """a, then b and c, then d; b on the second device."""
    graph = made("a=4 b=10 c=6 d=2", "ab=1000 ac bd=1000 cd")
    return ss.Schedule(graph, placements("a b@1 c d")), ss.Cluster.preset("a40", 2)


def test_spans_are_those_given():
    """Kernels and copies have the times of the simulated trace; its waits and host spans are not measured."""
    simulated = ss.simulate(*fork())
    trace = as_measured(simulated)
    assert trace.operator_times() == simulated.operator_times()
    assert {span.kind for span in trace.spans} == {"kernel", "copy"}


def test_the_critical_path_leads_back_through_what_ended_last():
    """a 0-4, its copy 5-7, b 7-17, its copy 18-20, d 20-22; c 4-10 lets nothing wait."""
    plan, cluster = fork()
    program, names = plan.lower(cluster), plan.graph.names
    launches = {"a": (0, 4), "b": (7, 17), "c": (4, 10), "d": (20, 22)}
    copies = {"a": (5, 7), "b": (18, 20)}
    found = (launches, program.launch_op), (copies, program.copies.op)
    times = ([known[names[op]] for op in ops] for known, ops in found)
    trace = measured_trace(program, cluster, *times)
    chain, at = [], int(np.argmax(trace.end))
    while at >= 0:
        chain.append(trace.name(at))
        at = int(trace.cause[at])
    assert chain == ["d", "b -> gpu0", "b", "a -> gpu1", "a"]


@settings(max_examples=20)
@given(graph=graphs(), seed=st.integers(0, 2**32), execution=st.sampled_from(EXECUTIONS))
def test_any_simulated_run_comes_back(graph, seed, execution):
    cluster = ss.Cluster.preset("a100", 2)
    simulated = ss.simulate(random_schedule(graph, cluster, rng=seed, execution=execution), cluster)
    trace = as_measured(simulated)
    assert trace.makespan == simulated.makespan
    assert (trace.end[trace.cause[trace.cause >= 0]] <= trace.start[trace.cause >= 0]).all()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x: x[:-1], "4 launches ran, but 3 were measured"),
        (lambda x: x * np.nan, "was measured from nan to nan us"),
        (lambda x: x[:, ::-1], "was measured from"),
        (lambda x: x - 100.0, "begins before the run does"),
    ],
)
def test_times_that_cannot_be_are_refused(change, text):
    trace = ss.simulate(*fork())
    _, launches, copies = times_of(trace)
    with pytest.raises(BackendError, match=text):
        measured_trace(trace.program, trace.cluster, change(launches), copies)


def test_a_replay_has_statistics():
    replay = Replay((30.0, 31.0, 29.5), as_measured(ss.simulate(*fork())), {"device": "gpu"}, 1e-7, "run")
    assert (replay.median, replay.summary.n) == (30.0, 3)


def test_a_profile_keeps_the_common_graph_of_its_runs_once():
    trace = as_measured(ss.simulate(*fork()))
    run, other = Replay((30.0,), trace, {}, None, "run"), Replay((40.0,), trace, {}, None, "other")
    operators = (MeasuredOperator("a", (4.0,)),)
    data = Profile(operators, runs=(run, other), graph=run.program.graph, cluster=run.cluster).to_dict()
    assert (len(data["graphs"]), len(data["clusters"]), len(data["runs"])) == (1, 1, 2)
    again = Profile.from_dict(data)
    assert [r.name for r in again.runs] == ["run", "other"]
    assert again.runs[0].program.graph is again.runs[1].program.graph
    data["runs"][0]["graph"] = 7
    with pytest.raises(FormatError, match="there is no graph 7"):
        Profile.from_dict(data)
    first, second = Profile(operators, runs=(run,)), Profile((MeasuredOperator("b", (5.0,)),), graph=trace.graph)
    both = first.joined(second)
    assert ([op.name for op in both.operators], both.runs, both.graph) == (["a", "b"], (run,), trace.graph)
    with pytest.raises(CostError, match="'a' stands twice"):
        first.joined(first)


def test_a_schedule_and_a_program_take_the_costs_of_another_graph():
    """Every operator twice as long: nothing else changes."""
    plan, cluster = fork()
    graph = plan.graph
    slow = made("a=8 b=20 c=12 d=4", graph.edges)
    assert plan.over(slow) is plan.over(slow)
    assert plan.over(graph) is plan
    assert plan.over(slow).placements == plan.placements
    expected = ss.simulate(plan.over(slow), cluster).makespan
    assert ss.simulate(plan.lower(cluster).over(slow), cluster).makespan == expected
    assert expected > ss.simulate(plan, cluster).makespan
    with pytest.raises(ScheduleError, match="is not one of graph"):
        plan.over(made("z=1"))
    many = made([Operator(name, kernels=(Kernel(1, share=0.5),) * 2) for name in graph.names], graph.edges)
    with pytest.raises(ProgramError, match="is not one of graph"):
        plan.lower(cluster).over(many)


@settings(max_examples=30)
@given(cluster=clusters())
def test_a_cluster_comes_back_from_json(cluster):
    assert Cluster.from_dict(json.loads(json.dumps(cluster.to_dict()))) == cluster
