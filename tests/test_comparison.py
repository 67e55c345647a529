"""`compare`: rows, what they say, how they print, and what becomes of schedulers that refuse."""

import builtins
import json
import math

import pytest

from simsched.cluster import Cluster
from simsched.comparison import Comparison, compare, scheduler_set
from simsched.errors import MissingDependencyError, SchedulerError, UnknownNameError
from simsched.graph import Edge, Kernel, Operator, OpGraph
from simsched.schedulers import FAST_UP_TO, SCHEDULERS
from simsched.schedules import Placement, Schedule
from simsched.units import GIB

FREE = Cluster.preset("a100", 2).without_overheads()


def fork(name="net", **fields):
    """a of 10 us, then b, c, d of 20 us each, which load nothing."""
    operators = [Operator("a", time=10.0, **fields)] + [Operator(n, time=20.0, **fields) for n in "bcd"]
    return OpGraph(operators, [Edge("a", n, transfer=5.0) for n in "bcd"], name)


def refuses(graph, cluster, cost):
    raise SchedulerError("refuses: this graph has [too] many operators")


def rows_by_name(comparison):
    return {row.scheduler: row for row in comparison.rows}


def test_rows_by_hand():
    """One by one 10 + 3 x 20 = 70 us. In stages or streams 10 + 20 = 30: 70 / 30 times as fast, as fast as the bound.

    greedy has three groups and one barrier, lios two waits on the other streams.
    """
    comparison = compare(fork(), FREE, ["sequential", "greedy", "lios"])
    sequential, greedy, lios = comparison.rows
    assert (sequential.makespan_us, sequential.estimate_us, sequential.speedup) == (70.0, 70.0, 1.0)
    assert sequential.over_bound == pytest.approx(70 / 30)
    assert (sequential.streams, sequential.devices, sequential.syncs) == (1, 1, 0)
    assert (greedy.makespan_us, greedy.estimate_us, greedy.over_bound) == (30.0, None, 1.0)
    assert greedy.speedup == pytest.approx(70 / 30)
    assert (greedy.streams, greedy.devices, greedy.syncs) == (3, 1, 1)
    assert (lios.makespan_us, lios.estimate_us, lios.streams, lios.syncs) == (30.0, 30.0, 3, 2)
    assert comparison.best() is greedy
    for row in comparison.rows:
        assert row.reason is row.warning is None
        assert row.search_s >= 0
    assert list(comparison.plans) == list(comparison.traces) == ["sequential", "greedy", "lios"]
    assert comparison.traces["lios"].makespan == 30.0


@pytest.mark.parametrize("n", [1, 2, 4])
def test_over_bound_is_at_least_one(n):
    graph = fork(utilization=0.5)
    for row in compare(graph, Cluster.preset("a40", n), "all").rows:
        assert row.over_bound >= 1.0
        assert 0.0 <= row.sm_utilization <= 1.0
        assert 0.0 <= row.sm_efficiency <= 1.0


def test_sets():
    """`fast` leaves out what needs longer on so large a graph; both keep the order of `SCHEDULERS`."""
    small, large = fork(), OpGraph.from_columns([f"o{i}" for i in range(2000)], [], [], time=1.0)
    assert scheduler_set("all", large) == scheduler_set("all", small) == list(SCHEDULERS)
    assert scheduler_set("fast", small) == list(SCHEDULERS)
    assert scheduler_set("fast", large) == [name for name in SCHEDULERS if FAST_UP_TO.get(name, 2000) >= 2000]
    assert "inter-lp" not in scheduler_set("fast", large)
    assert [row.scheduler for row in compare(small, FREE).rows] == scheduler_set("fast", small)
    assert [row.scheduler for row in compare(small, FREE, "all").rows] == list(SCHEDULERS)


def test_every_fast_limit_names_a_scheduler():
    assert set(FAST_UP_TO) <= set(SCHEDULERS)


def test_one_scheduler_by_name():
    (row,) = compare(fork(), FREE, "lios").rows
    assert row.scheduler == "lios"


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="unknown scheduler 'heft2'; known are: sequential"):
        compare(fork(), FREE, ["sequential", "heft2"])
    with pytest.raises(UnknownNameError, match="unknown scheduler 'fats'"):
        compare(fork(), FREE, "fats")


def test_a_scheduler_that_refuses_has_a_row():
    comparison = compare(fork(), FREE, ["lios", refuses])
    row = comparison.rows[1]
    assert (row.scheduler, row.reason) == ("refuses", "refuses: this graph has [too] many operators")
    assert (row.makespan_us, row.speedup, row.over_bound) == (None, None, None)
    assert "refuses" not in comparison.plans
    assert comparison.best().scheduler == "lios"
    text = " ".join(str(comparison).replace("│", " ").split())
    assert "[too]" in text


def test_nothing_but_refusals():
    comparison = compare(fork(), FREE, [refuses])
    assert comparison.best() is None
    assert "refuses" in str(comparison)
    json.dumps(comparison.to_dict(), allow_nan=False)


def test_functions_of_the_user():
    def on_the_other(graph, cluster, cost):
        return Schedule(graph, [Placement(n, "gpu1") for n in graph.order])

    row = rows_by_name(compare(fork(), FREE, ["sequential", on_the_other]))["on_the_other"]
    assert (row.makespan_us, row.devices) == (70.0, 1)


def test_two_functions_of_one_name_keep_their_rows_and_plans():
    """Two lambdas: two rows, and of both the plan and the trace can be had."""
    comparison = compare(fork(), FREE, [SCHEDULERS["lios"], lambda g, c, k: SCHEDULERS["lios"](g, c, k, streams=1),
                                        lambda g, c, k: SCHEDULERS["lios"](g, c, k, streams=2)])  # fmt: skip
    assert [row.makespan_us for row in comparison.rows] == [30.0, 70.0, 50.0]
    assert len(comparison.plans) == len({row.scheduler for row in comparison.rows}) == 3


def test_no_schedulers_at_all():
    comparison = compare(fork(), FREE, [])
    assert comparison.rows == ()
    assert comparison.best() is None
    assert "scheduler" in str(comparison)


def test_progress():
    seen = []
    compare(fork(), FREE, ["lios", refuses, "greedy"], progress=seen.append)
    assert seen == ["lios", "refuses", "greedy"]


def test_a_cost_model():
    """Twice the cost of everything: twice 30 us (exact transfers stay, but lios moves nothing)."""
    (row,) = compare(fork(), FREE, ["lios"], lambda op, device: 2 * op.time).rows
    assert (row.makespan_us, row.estimate_us, row.over_bound) == (60.0, 60.0, 1.0)


def test_jitter_is_the_same_for_every_scheduler():
    """The same draws for all and again: one and the same plan comes to the same makespan."""
    twice = [
        compare(fork(), FREE, ["sequential", "lios", SCHEDULERS["sequential"]], jitter=0.3, rng=1) for _ in range(2)
    ]
    first, second = ([row.makespan_us for row in comparison.rows] for comparison in twice)
    assert first == second
    assert first[0] == first[2] != 70.0


def numbers(value):
    if isinstance(value, dict):
        for below in value.values():
            yield from numbers(below)
    elif isinstance(value, list):
        for below in value:
            yield from numbers(below)
    elif isinstance(value, float):
        yield value


@pytest.mark.parametrize("cluster", [FREE, Cluster.preset("a40", 2)])
@pytest.mark.parametrize(
    "graph",
    [
        fork(),
        OpGraph([Operator("a", time=0.0)]),
        OpGraph([Operator("a", time=0.0, kernels=(Kernel(1),)), Operator("b", time=0.0)], [Edge("a", "b", 1e6)]),
    ],
)
def test_json_without_nan(graph, cluster):
    data = compare(graph, cluster, ["sequential", "lios", "round-robin", refuses]).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert all(map(math.isfinite, numbers(data)))
    assert data["graph"]["name"] == graph.name
    assert [row["scheduler"] for row in data["rows"]] == ["sequential", "lios", "round-robin", "refuses"]


def test_operators_without_load_are_counted():
    """Three that load nothing; d has a utilization."""
    graph = OpGraph([Operator(n, time=1.0) for n in "abc"] + [Operator("d", time=1.0, utilization=0.5)])
    comparison = compare(graph, FREE, ["lios"])
    assert comparison.to_dict()["graph"]["operators_without_load"] == 3
    assert "3 of 4 operators have neither kernels nor utilization" in str(comparison)


def test_memory_warning():
    """48 + 3 GiB of weights on an A40 of 48 GiB; on two of them neither is too small."""
    graph = OpGraph(
        [Operator("a", time=1.0, weight_nbytes=48.0 * GIB), Operator("b", time=1.0, weight_nbytes=3.0 * GIB)]
    )
    comparison = compare(graph, Cluster.preset("a40", 2), ["sequential", "round-robin"])
    sequential, dealt = comparison.rows
    assert sequential.peak_memory_bytes == 51.0 * GIB
    assert sequential.warning == "gpu0 needs 51.0 GiB but a40 has 48.0 GiB"
    assert dealt.warning is None
    assert dealt.peak_memory_bytes == 48.0 * GIB
    text = " ".join(str(comparison).split())
    assert "warning: sequential: gpu0 needs 51.0 GiB but a40 has 48.0 GiB" in text


def test_printing():
    """Every row and heading on lines no wider than 140; the unit is ms where something takes one."""
    text = str(compare(fork(), FREE, ["sequential", "lios"]))
    assert "net on 2 x a100" in text
    for word in ("makespan us", "estimate us", "speedup", "over bound", "sequential", "lios", "2.33x"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 140
    slow = OpGraph([Operator("a", time=5000.0)])
    assert "makespan ms" in str(compare(slow, FREE, ["lios"]))


@pytest.mark.parametrize("name", ["net[/b]", "net[red]x", "a [1]", "[link=x]y"])
def test_names_are_not_markup(name):
    """A graph's name is printed as it is."""
    assert f"{name} on " in str(compare(fork(name), FREE, ["lios"]))


def test_a_schedulers_name_is_not_markup():
    def mine(graph, cluster, cost):
        return Schedule(graph, [Placement(n) for n in graph.order])

    mine.__name__ = "mine[/x]"
    assert "mine[/x]" in str(compare(fork(), FREE, [mine]))


def test_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = compare(fork(), FREE, ["sequential", refuses]).to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["scheduler"]) == ["sequential", "refuses"]
    assert frame["makespan_us"][0] == 70.0
    assert frame["reason"][1].startswith("refuses: ")


def test_data_frame_without_pandas(monkeypatch):
    comparison = compare(fork(), FREE, ["sequential"])
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "pandas":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match="pip install pandas"):
        comparison.to_dataframe()


def test_a_comparison_of_a_kernel_that_fits_nowhere_says_so():
    """1024 threads x 200 registers: every scheduler, `sequential` included, has a row with the reason."""
    graph = OpGraph([Operator("a", time=1.0, kernels=(Kernel(1, 1024, 200),))])
    comparison = compare(graph, FREE, ["sequential", "lios"])
    assert isinstance(comparison, Comparison)
    assert all("does not fit on an SM of a100" in row.reason for row in comparison.rows)
