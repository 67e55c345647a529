"""Measured runs as data: traces from measured times, JSON, and a schedule over another graph."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import clusters, graphs

import simsched as ss
from simsched.base.errors import BackendError, ClusterError, CostError, FormatError, ProgramError, ScheduleError
from simsched.calibration.training import random_schedule
from simsched.model import EXECUTIONS, Cluster, Edge, Kernel, Operator, OpGraph
from simsched.model.profile import MeasuredOperator, Profile, Replay
from simsched.model.trace import COPY, KERNEL, measured_trace


def times_of(trace):
    """Start and end of each launch and of each copy of a trace."""
    found = []
    for kind, count in ((KERNEL, len(trace.program.launch_op)), (COPY, len(trace.program.copies.op))):
        times = np.zeros((count, 2))
        rows = trace.kind == kind
        times[trace.item[rows]] = np.column_stack([trace.start[rows], trace.end[rows]])
        found.append(times)
    return found


def as_measured(trace):
    return measured_trace(trace.program, trace.cluster, *times_of(trace))


def fork():
    """a, then b and c, then d; b on the second device."""
    graph = OpGraph(
        [Operator(n, time=t) for n, t in zip("abcd", (4.0, 10.0, 6.0, 2.0), strict=True)],
        [Edge("a", "b", 1000.0), Edge("a", "c"), Edge("b", "d", 1000.0), Edge("c", "d")],
    )
    plan = ss.Schedule(graph, [ss.Placement("a"), ss.Placement("b", "gpu1"), ss.Placement("c"), ss.Placement("d")])
    return plan, ss.Cluster.preset("a40", 2)


def a_replay(name="run"):
    trace = as_measured(ss.simulate(*fork()))
    return Replay((30.0, 31.0, 29.5), trace, {"device": "gpu", "date": "today"}, 1e-7, name)


class TestMeasuredTrace:
    def test_spans_are_those_given(self):
        """Kernels and copies have the times of the simulated trace; its waits and host spans are not measured."""
        simulated = ss.simulate(*fork())
        trace = as_measured(simulated)
        assert trace.makespan == simulated.makespan
        assert trace.operator_times() == simulated.operator_times()
        assert {span.kind for span in trace.spans} == {"kernel", "copy"}

    def test_critical_path_leads_back_through_what_ended_last(self):
        """a 0-4, its copy 5-7, b 7-17, its copy 18-20, d 20-22; c 4-10 lets nothing wait."""
        plan, cluster = fork()
        program = plan.lower(cluster)
        row = {program.graph.names[op]: i for i, op in enumerate(program.launch_op)}
        launches = np.zeros((4, 2))
        for name, span in {"a": (0, 4), "b": (7, 17), "c": (4, 10), "d": (20, 22)}.items():
            launches[row[name]] = span
        copies = {"a": (5, 7), "b": (18, 20)}
        trace = measured_trace(program, cluster, launches, [copies[plan.graph.names[op]] for op in program.copies.op])
        chain, at = [], int(np.argmax(trace.end))
        while at >= 0:
            chain.append(trace.name(at))
            at = int(trace.cause[at])
        assert chain == ["d", "b -> gpu0", "b", "a -> gpu1", "a"]

    @settings(max_examples=30)
    @given(graph=graphs(), seed=st.integers(0, 2**32), execution=st.sampled_from(EXECUTIONS))
    def test_any_simulated_run_comes_back(self, graph, seed, execution):
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
    def test_times_that_cannot_be_are_refused(self, change, text):
        launches, copies = times_of(ss.simulate(*fork()))
        plan, cluster = fork()
        with pytest.raises(BackendError, match=text):
            measured_trace(plan.lower(cluster), cluster, change(launches), copies)


class TestReplay:
    def test_statistics(self):
        replay = a_replay()
        assert replay.median == 30.0
        assert replay.summary.n == 3
        assert replay.program.graph.name == replay.trace.graph.name

    def test_json_and_pickle_return_it(self, tmp_path):
        replay = a_replay()
        replay.save(tmp_path / "r.json")
        for again in (Replay.load(tmp_path / "r.json"), pickle.loads(pickle.dumps(replay))):
            assert again.latency == replay.latency
            assert dict(again.environment) == dict(replay.environment)
            assert again.max_relative_error == 1e-7
            assert again.name == "run"
            assert again.cluster == replay.cluster
            for mine, theirs in zip(times_of(again.trace), times_of(replay.trace), strict=True):
                assert mine == pytest.approx(theirs, abs=1e-6)

    @pytest.mark.parametrize(
        ("change", "error", "text"),
        [
            ({"launches": [[1.0, 2.0]]}, BackendError, "4 launches ran, but 1"),
            ({"environment": {"a": 1}}, FormatError, "environment"),
        ],
    )
    def test_a_file_that_is_not_one_is_refused(self, change, error, text):
        with pytest.raises(error, match=text):
            Replay.from_dict({**a_replay().to_dict(), **change}, "r.json")

    def test_profile_keeps_runs_and_their_common_graph_once(self):
        run = a_replay()
        other = Replay((40.0,), run.trace, {}, None, "other")
        operators = (MeasuredOperator("a", (4.0,)),)
        profile = Profile(operators, runs=(run, other), graph=run.program.graph, cluster=run.cluster)
        data = json.loads(json.dumps(profile.to_dict()))
        assert (len(data["graphs"]), len(data["clusters"]), len(data["runs"])) == (1, 1, 2)
        again = Profile.from_dict(data)
        assert [r.name for r in again.runs] == ["run", "other"]
        assert again.runs[0].program.graph is again.runs[1].program.graph
        assert again.graph == profile.graph
        assert again.cluster == profile.cluster
        data["runs"][0]["graph"] = 7
        with pytest.raises(FormatError, match="there is no graph 7"):
            Profile.from_dict(data)

    def test_profiles_of_one_device_are_joined(self):
        run = a_replay()
        first = Profile((MeasuredOperator("a", (4.0,)),), runs=(run,))
        second = Profile((MeasuredOperator("b", (5.0,)),), graph=run.program.graph)
        both = first.joined(second)
        assert [op.name for op in both.operators] == ["a", "b"]
        assert both.graph is run.program.graph
        with pytest.raises(CostError, match="'a' stands twice"):
            first.joined(first)


class TestOverAnotherGraph:
    def test_schedule_and_program_take_the_costs_of_another_graph(self):
        """Every operator twice as long: nothing else changes."""
        plan, cluster = fork()
        slow = OpGraph(
            [Operator(op.name, time=2 * op.time) for op in plan.graph.operators], plan.graph.edges, plan.graph.name
        )
        assert plan.over(slow) is plan.over(slow)
        assert plan.over(plan.graph) is plan
        assert plan.over(slow).placements == plan.placements
        expected = ss.simulate(plan.over(slow), cluster).makespan
        assert ss.simulate(plan.lower(cluster).over(slow), cluster).makespan == expected
        assert expected > ss.simulate(plan, cluster).makespan

    def test_another_graph_is_refused(self):
        plan, cluster = fork()
        other = OpGraph([Operator("z", time=1.0)])
        with pytest.raises(ScheduleError, match="is not one of graph"):
            plan.over(other)
        many = OpGraph(
            [Operator(op.name, kernels=(Kernel(1, share=0.5), Kernel(1, share=0.5))) for op in plan.graph.operators],
            plan.graph.edges,
        )
        with pytest.raises(ProgramError, match="is not one of graph"):
            plan.lower(cluster).over(many)


class TestClusterFiles:
    @settings(max_examples=30)
    @given(cluster=clusters())
    def test_json_returns_it(self, cluster):
        assert Cluster.from_dict(json.loads(json.dumps(cluster.to_dict()))) == cluster

    def test_file(self, tmp_path):
        cluster = ss.Cluster.preset("h100", 3)
        cluster.save(tmp_path / "c.json")
        assert Cluster.load(tmp_path / "c.json") == cluster

    @pytest.mark.parametrize(
        ("change", "error", "text"),
        [
            (lambda d: d["devices"][0].update(launch=-1.0), ClusterError, "launch must be finite"),
            (lambda d: d["links"][0].update(ends=["a"]), FormatError, "ends must be a list of 2"),
            (lambda d: d.update(devices=[]), ClusterError, "at least one device"),
        ],
    )
    def test_bad_files_name_the_field(self, change, error, text):
        data = ss.Cluster.preset("a40", 2).to_dict()
        change(data)
        with pytest.raises(error, match=text):
            Cluster.from_dict(data, "c.json")
