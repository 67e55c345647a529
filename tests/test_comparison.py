"""`compare`: rows, what they say, how they print, and the files that hold them."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

import workloads
from simsched.base.errors import SchedulerError, SimschedError, SimulationError, UnknownNameError
from simsched.base.units import GIB
from simsched.calibration import Calibration
from simsched.experiments.comparison import Comparison, Draws, compare, scheduler_set
from simsched.model import Cluster, Edge, Kernel, Operator, OpGraph
from simsched.schedulers import FAST_UP_TO, SCHEDULERS
from simsched.show.plot import box_plot
from simsched.simulator import Makespans

FREE = Cluster.preset("a100", 2).without_overheads()


def fork(name="net", **fields):
    """a of 10 us, then b, c, d of 20 us each, which load nothing."""
    operators = [Operator("a", time=10.0, **fields)] + [Operator(n, time=20.0, **fields) for n in "bcd"]
    return OpGraph(operators, [Edge("a", n, transfer=5.0) for n in "bcd"], name)


def refuses(graph, cluster, cost):
    raise SchedulerError("refuses: this graph has [too] many operators")


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
    nothing = compare(OpGraph([Operator("a", time=0.0)]), FREE, ["lios", refuses]).summary()
    assert json.loads(json.dumps(nothing, allow_nan=False)) == nothing  # 0 / 0 is None


@pytest.mark.usefixtures("quick_search")
@pytest.mark.parametrize("n", [1, 3])
def test_over_bound_is_at_least_one(n):
    graph = fork(utilization=0.5)
    rows = [row for row in compare(graph, Cluster.preset("a40", n), "all").rows if row.reason is None]
    assert len(rows) == len(SCHEDULERS) - 1  # AutoGraph wants shapes
    for row in rows:
        assert row.over_bound >= 1.0
        assert 0.0 <= row.sm_utilization <= 1.0
        assert 0.0 <= row.sm_efficiency <= 1.0


@pytest.mark.usefixtures("quick_search")
def test_sets():
    """`fast` leaves out what needs longer on so large a graph; both keep the order of `SCHEDULERS`."""
    small, large = fork(), OpGraph.from_columns([f"o{i}" for i in range(2000)], [], [], time=1.0)
    assert scheduler_set("all", large) == scheduler_set("all", small) == list(SCHEDULERS)
    assert scheduler_set("fast", small) == [name for name in SCHEDULERS if name != "search"]
    assert scheduler_set("fast", large) == [name for name in SCHEDULERS if FAST_UP_TO.get(name, 2000) >= 2000]
    assert "ios" not in scheduler_set("fast", large)
    assert set(FAST_UP_TO) <= set(SCHEDULERS)
    assert [row.scheduler for row in compare(small, FREE).rows] == scheduler_set("fast", small)
    assert [row.scheduler for row in compare(small, FREE, "lios").rows] == ["lios"]
    assert [row.scheduler for row in compare(small, FREE, "all").rows] == list(SCHEDULERS)
    with pytest.raises(UnknownNameError, match="unknown scheduler 'fats'"):
        compare(small, FREE, "fats")


def test_a_scheduler_that_refuses_has_a_row():
    comparison = compare(fork(), FREE, ["lios", refuses])
    row = comparison.rows[1]
    assert (row.scheduler, row.reason) == ("refuses", "refuses: this graph has [too] many operators")
    assert (row.makespan_us, row.speedup, row.over_bound) == (None, None, None)
    assert "refuses" not in comparison.plans
    assert comparison.best().scheduler == "lios"
    text = " ".join(str(comparison).replace("│", " ").split())
    assert "[too]" in text
    nowhere = OpGraph([Operator("a", time=1.0, kernels=(Kernel(1, 1024, 200),))])  # 1024 threads x 200 registers
    assert all("does not fit on an SM" in row.reason for row in compare(nowhere, FREE, ["sequential", "lios"]).rows)
    for none in ([], [refuses]):
        comparison = compare(fork(), FREE, none)
        assert comparison.best() is None
        json.dumps(comparison.to_dict(), allow_nan=False)
        assert str(comparison)


def test_two_functions_of_one_name_keep_their_rows_and_plans():
    """Of the user's own; with twice the cost of everything each takes twice as long."""
    comparison = compare(fork(), FREE, [SCHEDULERS["lios"], lambda g, c, k: SCHEDULERS["lios"](g, c, k, streams=1),
                                        lambda g, c, k: SCHEDULERS["lios"](g, c, k, streams=2)])  # fmt: skip
    assert [row.makespan_us for row in comparison.rows] == [30.0, 70.0, 50.0]
    assert len(comparison.plans) == len({row.scheduler for row in comparison.rows}) == 3
    (row,) = compare(fork(), FREE, ["lios"], lambda op, device: 2 * op.time).rows
    assert (row.makespan_us, row.estimate_us, row.over_bound) == (60.0, 60.0, 1.0)


def test_progress():
    seen = []

    def talks(graph, cluster, cost, *, progress=None):
        progress("half of it")
        return SCHEDULERS["lios"](graph, cluster, cost)

    compare(fork(), FREE, ["lios", refuses, talks], progress=lambda name, doing: seen.append((name, doing)))
    assert seen == [("lios", ""), ("refuses", ""), ("talks", ""), ("talks", "half of it")]


def test_search_begins_from_those_before_it():
    """Of a graph that it would not have found itself, in as few evaluations as there are starts."""
    graph, cluster = workloads.load("tiny_inception", granularity="operator"), Cluster.preset("a100")
    rewritten = compare(graph, cluster, ["sequential", "autograph", small_search]).rows[1:]
    assert rewritten[1].makespan_us <= rewritten[0].makespan_us
    plans = compare(graph, cluster, ["autograph", small_search]).plans
    assert len(plans["autograph"].graph) < len(graph)
    assert plans["small_search"].graph is plans["autograph"].graph


def small_search(graph, cluster, cost, *, tools, also=()):
    return tools.schedule(graph, cluster, "search", cost, evaluations=40, also=also)


def test_operators_without_load_are_counted():
    """Three that load nothing; d has a utilization."""
    graph = OpGraph([Operator(n, time=1.0) for n in "abc"] + [Operator("d", time=1.0, utilization=0.5)])
    comparison = compare(graph, FREE, ["lios"])
    assert comparison.summary()["graph"]["operators_without_load"] == 3
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


def chain(*times):
    """Operators one after the other, which load nothing."""
    names = [f"o{i}" for i in range(len(times))]
    operators = [Operator(name, time=time) for name, time in zip(names, times, strict=True)]
    return OpGraph(operators, [Edge(a, b) for a, b in itertools.pairwise(names)], "chain")


def factors(jitter, seed, shape):
    """Log-normal factors of mean 1 as `compare` draws them: one row per sample, one column per operator."""
    sigma = math.sqrt(math.log1p(jitter**2))
    rng = np.random.default_rng(int(np.random.default_rng(seed).integers(2**63)))
    return np.exp(sigma * rng.standard_normal(shape) - sigma**2 / 2)


def test_percentiles_of_one_operator():
    """100 us times a log-normal factor: the draws by hand, and near the percentiles of the distribution."""
    comparison = compare(chain(100.0), FREE, ["lios"], jitter=0.1, rng=5, samples=2000)
    drawn = 100.0 * factors(0.1, 5, (2000, 1))[:, 0]
    (row,) = comparison.rows
    assert comparison.samples["lios"].values == pytest.approx(drawn)
    assert (row.p50_us, row.p95_us, row.p99_us) == pytest.approx(tuple(np.percentile(drawn, [50, 95, 99])))
    assert row.makespan_us == 100.0
    sigma = math.sqrt(math.log1p(0.01))
    for value, quantile in ((row.p50_us, 0.0), (row.p95_us, 1.6449), (row.p99_us, 2.3263)):
        assert value == pytest.approx(100.0 * math.exp(quantile * sigma - sigma**2 / 2), rel=0.02)


def test_samples_are_the_same_draws_for_every_scheduler():
    """The one of jitter alone first; again, and with more workers, the same."""
    asked = ["sequential", "lios", SCHEDULERS["sequential"]]
    first, again, three = (
        compare(fork(), FREE, asked, jitter=0.3, rng=1, samples=8, workers=workers) for workers in (1, 1, 3)
    )
    assert list(first.samples) == ["sequential", "lios", "sequential (2)"]
    for name, drawn in first.samples.items():
        assert len(drawn) == 8
        for other in (again, three):
            np.testing.assert_array_equal(drawn.values, other.samples[name].values)
    np.testing.assert_array_equal(first.samples["sequential"].values, first.samples["sequential (2)"].values)
    alone = compare(fork(), FREE, asked, jitter=0.3, rng=1)
    for row in alone.rows:
        assert first.samples[row.scheduler].values[0] == pytest.approx(row.makespan_us)
    shorter = compare(fork(), FREE, asked, jitter=0.3, rng=1, samples=3)
    np.testing.assert_array_equal(shorter.samples["lios"].values, first.samples["lios"].values[:3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples": 3}, "pass `jitter`"),
        ({"samples": 3, "jitter": 0.1}, "pass `rng`"),
        ({"samples": 0, "jitter": 0.1, "rng": 0}, "samples must be a whole number of at least 1, not 0"),
        ({"samples": 1.5, "jitter": 0.1, "rng": 0}, "samples must be a whole number"),
        ({"samples": 3, "jitter": 0.1, "rng": 0, "workers": 0}, "workers must be a whole number of at least 1, not 0"),
    ],
)
def test_samples_that_cannot_be_drawn(arguments, message):
    with pytest.raises(SimulationError, match=message):
        compare(fork(), FREE, ["lios"], **arguments)


def test_samples_in_the_table():
    """p50 and p99 right of the makespan, a dash where there is no schedule, and how they were drawn below."""
    text = str(compare(chain(100.0), FREE, ["lios", refuses], jitter=0.1, rng=0, samples=4))
    drawn = 100.0 * factors(0.1, 0, (4, 1))[:, 0]
    heading, lios, refusal = (
        next(line for line in text.splitlines() if word in line) for word in ("makespan us", "lios", "refuses")
    )
    columns = [cell.strip() for cell in heading.replace("┃", "|").split("|")]
    assert columns[1:6] == ["scheduler", "makespan us", "p50", "p99", "estimate"]
    assert lios.replace("│", " ").split()[1:4] == ["100.0", *(f"{np.percentile(drawn, q):.1f}" for q in (50, 99))]
    assert refusal.count(" - ") == len(columns) - 3
    assert "p50, p99 of 4 samples, jitter 10 %, seed 0; makespan and speedup without jitter" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 140
    plain = str(compare(chain(5000.0), FREE, ["lios"], jitter=0.1, rng=0))
    assert "makespan ms" in plain
    assert "p50" not in plain
    some = compare(chain(5.0), FREE, ["lios"], jitter={"o0": 1}, rng=np.random.default_rng(0), samples=np.int64(1))
    assert some.to_dict()["sampling"] == {"n": 1, "jitter": {"o0": 1.0}, "seed": None}
    assert str(some.sampling).startswith("1 sample, jitter of each")


def test_box_plot_of_a_comparison():
    """A box per schedule with its p50 as the line; the title says what was sampled, and how."""
    comparison = compare(fork(), FREE, ["sequential", refuses, "lios"], jitter=0.2, rng=3, samples=9)
    ax = comparison.box_plot()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["sequential", "lios"]
    with pytest.raises(SimulationError, match="no samples to draw"):
        compare(fork(), FREE, ["lios"]).box_plot()
    assert len(ax.patches) == 2
    assert medians(ax) == pytest.approx([comparison.rows[0].p50_us, comparison.rows[2].p50_us])
    assert ax.get_title(loc="left") == "net on 2 x a100\n9 samples, jitter 20 %, seed 3"


def medians(ax):
    """Where the lines in the boxes are."""
    return [line.get_ydata()[0] for line in ax.lines if line.get_linewidth() == 1.2]


def spread(*middles, width=0.1):
    """Five makespans about each of some middles, by scheduler."""
    return {f"s{i}": Makespans(m * (1 + width * np.linspace(-1, 1, 5))) for i, m in enumerate(middles)}


def test_boxes_whiskers_and_outliers(tmp_path):
    """Of 1 to 9 and 40: quartiles 3.25 and 7.75, whiskers at 1 and 9, and a point at 40; thousands are a small file."""
    ax = box_plot({"lios": Makespans(np.array([*range(1, 10), 40.0]))})
    (box,) = ax.patches
    assert sorted(set(box.get_path().vertices[:, 1])) == [3.25, 7.75]
    assert medians(ax) == [5.5]
    ends = {y for line in ax.lines if line.get_linewidth() == 0.7 for y in line.get_ydata()}
    assert ends == {1.0, 3.25, 7.75, 9.0}
    (points,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert list(points.get_ydata()) == [40.0]
    box_plot({"lios": Makespans(np.random.default_rng(0).standard_cauchy(50_000) ** 2)}, tmp_path / "b.svg")
    assert (tmp_path / "b.svg").stat().st_size < 300_000


def test_flat_boxes_are_drawn_again_below():
    """Boxes of 1 % at 100 and 200 us: below in per cent of the medians; not if they can be seen."""
    above, below = box_plot(spread(100.0, 200.0, width=0.01)).figure.axes
    assert medians(above) == [100.0, 200.0]
    assert (medians(below), below.get_ylabel()) == ([0.0, 0.0], "vs. median (%)")
    assert [label.get_text() for label in below.get_xticklabels()] == ["s0", "s1"]
    assert sorted(set(np.round(below.patches[1].get_path().vertices[:, 1], 9))) == [-0.5, 0.5]
    assert len(box_plot(spread(100.0, 200.0)).figure.axes) == 1
    assert len(box_plot(spread(100.0, 200.0, width=0.0)).figure.axes) == 1


def test_names_of_schedulers_are_legible():
    """Level and on several lines where they fit, slanted where they do not; nothing of them is lost."""
    few = box_plot(dict.fromkeys(["round-robin", "lios", "greedy"], Makespans(np.arange(5.0))))
    assert [label.get_rotation() for label in few.get_xticklabels()] == [0.0] * 3
    names = [*SCHEDULERS, "my_package.my_module:round_robin_by_depth", "x" * 50, "of some words", "$\\x$", *"abcdefgh"]
    many = box_plot(dict.fromkeys(names, Makespans(np.arange(5.0))))
    many.figure.draw_without_rendering()
    labels = many.get_xticklabels()
    assert [label.get_text().replace("\n", "") for label in labels] == names
    assert {label.get_rotation() for label in labels} == {40.0}
    assert all(len(line) <= 22 for label in labels for line in label.get_text().split("\n"))


def test_rows_that_repeat_others_on_one_gpu_are_not_printed():
    """They are in the rows, in data frames and in files; and printed where they are named, or differ on two GPUs."""
    graph = workloads.from_spec("inception_v3")
    found = compare(graph, Cluster.preset("a100"), "fast")
    names = [row.scheduler for row in found.rows]
    assert {"round-robin", "inter-lp", "inter-mr", "hios-mr"} < set(names)
    printed = [line.split()[1] for line in repr(found).splitlines() if line.startswith("│")]
    assert printed == [name for name in names if name not in ("round-robin", "inter-lp", "inter-mr", "hios-mr")]
    assert "round-robin, inter-lp, inter-mr: as sequential on one GPU" in repr(found)
    assert "round-robin" in repr(compare(graph, Cluster.preset("a100"), ["sequential", "round-robin"]))
    assert "as sequential" not in repr(compare(graph, Cluster.preset("a100", 2), "fast"))


# Files ------------------------------------------------------------------------------------------


FORK = fork()


def again(comparison):
    """What a file of it holds."""
    return Comparison.from_dict(json.loads(json.dumps(comparison.to_dict(), allow_nan=False)))


def require_same(first, second):
    assert (second.graph, second.cluster) == (first.graph, first.cluster)
    assert (second.rows, second.sampling, second.draws) == (first.rows, first.sampling, first.draws)
    assert second.summary() == first.summary()
    assert str(second) == str(first)
    assert list(second.plans) == list(first.plans)
    assert list(second.traces) == list(first.traces)
    for name, trace in first.traces.items():
        other = second.traces[name]
        assert list(second.plans[name].placements) == list(first.plans[name].placements)
        for column in ("kind", "op", "device", "stream"):
            assert getattr(other, column).tolist() == getattr(trace, column).tolist()
        for column in ("start", "end", "ready", "solo"):
            np.testing.assert_allclose(getattr(other, column), getattr(trace, column), rtol=1e-9, atol=1e-9)
    assert list(second.samples) == list(first.samples)
    for name, drawn in first.samples.items():
        assert second.samples[name].values.tolist() == drawn.values.tolist()


def test_what_is_written_by_hand():
    """sequential takes 10 + 3 x 20 = 70 us, lios 10 + 20 = 30 us; both run the one graph, which stands there once."""
    comparison = compare(FORK, FREE, ["sequential", "lios", refuses])
    data = comparison.to_dict()
    assert (data["format"], data["version"], data["graph"]) == ("simsched.comparison", 1, 0)
    assert [row["makespan_us"] for row in data["rows"]] == [70.0, 30.0, None]
    assert data["graphs"] == [FORK.to_dict()]
    assert data["cluster"] == FREE.to_dict()
    assert {name: plan["graph"] for name, plan in data["plans"].items()} == {"sequential": 0, "lios": 0}
    assert (data["sampling"], data["draws"], data["samples"]) == (None, None, {})
    found = again(comparison)
    require_same(comparison, found)
    assert found.plans["lios"].graph is found.plans["sequential"].graph is found.graph
    assert found.best().scheduler == "lios"


def test_rewritten_graphs_are_written_too():
    """AutoGraph runs a network of other operators than those that were compared."""
    graph = workloads.load("tiny_inception")
    comparison = compare(graph, FREE, ["lios", "autograph"])
    data = comparison.to_dict()
    assert [len(each["operators"]) for each in data["graphs"]] == [
        len(graph), len(comparison.plans["autograph"].graph)
    ]  # fmt: skip
    require_same(comparison, again(comparison))


@pytest.mark.parametrize("jitter", [0.2, np.float32(0.5), {"b": 1}])
@pytest.mark.parametrize("rng", [3, np.random.default_rng(4)])
def test_jitter_of_traces_is_drawn_again(jitter, rng):
    comparison = compare(FORK, FREE, ["sequential", "lios"], jitter=jitter, rng=rng)
    assert isinstance(comparison.draws, Draws)
    require_same(comparison, again(comparison))


@pytest.mark.parametrize("n", [7, 10_001])
def test_samples_are_kept_or_drawn_again(n):
    """Those of up to 10,000 are in the file, those of more come from the seed: the same either way."""
    comparison = compare(FORK, FREE, ["lios"], jitter=0.2, rng=np.random.default_rng(0), samples=n)
    assert comparison.sampling.seed is None
    data = comparison.to_dict()
    assert [len(values) for values in data["samples"].values()] == ([7] if n == 7 else [])
    require_same(comparison, again(comparison))


def test_times_of_a_cost_model_are_written():
    """Operators take 1 us on gpu0 and 3 us on gpu1, which no `time` of the compared graph can say.

    Dealt out in turn, a and c run on gpu0, b and d on gpu1: that graph is written with 1, 3, 1, 3 us, the one that
    sequential runs with 1 us each, and the graph that was compared as it was.
    """

    def cost(op, device):
        return 1.0 if device.name == "gpu0" else 3.0

    comparison = compare(FORK, FREE, ["sequential", "round-robin", "lios"], cost)
    data = comparison.to_dict()
    times = [[op["time"] for op in graph["operators"]] for graph in data["graphs"]]
    assert times[:3] == [[10.0, 20.0, 20.0, 20.0], [1.0, 1.0, 1.0, 1.0], [1.0, 3.0, 1.0, 3.0]]
    assert [plan["graph"] for plan in data["plans"].values()] == [1, 2, 1]
    require_same(comparison, again(comparison))


def test_times_of_a_calibration_are_written():
    """Measured at 7 us where the graph says 10: the file needs no calibration to say so."""
    cluster = Cluster.preset("a100", 2)
    measured = Calibration(cluster, cluster, FORK, {"a": 7.0, "b": 21.0, "c": 19.0, "d": 20.0}, {}, (), ())
    comparison = compare(FORK, measured, ["sequential", "lios"])
    assert comparison.rows[0].makespan_us != compare(FORK, cluster, ["sequential"]).rows[0].makespan_us
    data = comparison.to_dict()
    assert [op["time"] for op in data["graphs"][0]["operators"]] == [7.0, 21.0, 19.0, 20.0]
    assert len(data["graphs"]) == 1
    require_same(comparison, again(comparison))
    with_cost = compare(FORK, measured, ["lios"], lambda op, device: 2.0)
    require_same(with_cost, again(with_cost))


@settings(max_examples=8)
@given(
    graph=graphs(max_ops=6),
    n=st.integers(1, 3),
    jitter=st.sampled_from([None, 0.3]),
    samples=st.sampled_from([None, 4]),
)
def test_any_comparison_comes_back(graph, n, jitter, samples):
    comparison = compare(
        graph, Cluster.preset("a40", n), ["sequential", "lios", "round-robin", refuses],
        jitter=jitter, rng=1, samples=samples if jitter else None,
    )  # fmt: skip
    require_same(comparison, again(comparison))


def spoilt(change):
    data = compare(FORK, FREE, ["lios", refuses], jitter=0.1, rng=0, samples=3).to_dict()
    change(data)
    return data


def test_reading_simulates_nothing():
    """A file of another release opens, whatever its model said: traces are simulated when somebody asks for them."""
    data = spoilt(lambda d: d["rows"][0].update(makespan_us=31.0))
    found = Comparison.from_dict(data)
    assert found.rows[0].makespan_us == 31.0
    assert "31.0" in repr(found)
    assert found.traces["lios"].makespan == pytest.approx(30.0, rel=0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["rows"][0].update(makespan_us=None), "there is either a makespan_us or a reason"),
        (lambda d: d["rows"][1].update(scheduler="lios"), "one schedule for each row"),
        (lambda d: d["plans"].clear(), "one schedule for each row"),
        (lambda d: d["plans"]["lios"].update(graph=1), "there is no graph 1; the file has 1"),
        (lambda d: d["plans"]["lios"]["placements"].pop(), "is placed nowhere"),
        (lambda d: d.update(graphs=[]), "there is no graph 0; the file has 0"),
        (lambda d: d.update(draws=None), "'draws' the jitter of 'sampling'"),
        (lambda d: d["samples"]["lios"].pop(), "as many makespans as 'sampling' says"),
        (lambda d: d["samples"].update(nobody=[1.0] * 3), "'samples' must hold those of schedules"),
    ],
)
def test_what_was_spoilt_is_refused(change, message):
    with pytest.raises(SimschedError, match=message) as refused:
        Comparison.from_dict(spoilt(change), "c.json")
    assert "\n" not in str(refused.value)
