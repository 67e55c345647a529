"""`compare`: rows, what they say, how they print, and the files that hold them."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import chain, edges, made, operators
from strategies import graphs

import workloads
from simsched.base.errors import SchedulerError, SimschedError, SimulationError, UnknownNameError
from simsched.base.units import GIB
from simsched.calibration import Calibration
from simsched.experiments.baselines import NAMES
from simsched.experiments.comparison import Comparison, compare, scheduler_set
from simsched.experiments.rows import Row
from simsched.model import Cluster, Kernel, Operator, OpGraph
from simsched.model.graph import UNKNOWN
from simsched.schedulers import FAST_UP_TO, SCHEDULERS
from simsched.simulator import simulate_many

FREE = Cluster.preset("a100", 2).without_overheads()


# a of 10 us, then b, c, d of 20 us each, which load nothing
FORK = OpGraph(operators("a=10 b=20 c=20 d=20"), edges("ab:5 ac:5 ad:5"), "net")


def refuses(graph, cluster, cost):
    raise SchedulerError("refuses: this graph has [too] many operators")


def test_rows_by_hand():
    """One by one 10 + 3 x 20 = 70 us. In stages or streams 10 + 20 = 30: 70 / 30 times as fast, as fast as the bound.

    greedy has three groups and one barrier, lios two waits on the other streams.
    """
    comparison = compare(FORK, FREE, ["sequential", "greedy", "lios"])
    times = [(row.makespan_us, row.estimate_us, row.speedup, row.over_bound) for row in comparison.rows]
    assert times == [(70, 70, 1, 70 / 30), (30, None, 70 / 30, 1), (30, 30, 70 / 30, 1)]
    assert [(row.streams, row.devices, row.syncs) for row in comparison.rows] == [(1, 1, 0), (3, 1, 1), (3, 1, 2)]
    _, greedy, lios = comparison.rows
    assert comparison.best() is greedy
    for row in comparison.rows:
        assert row.reason is row.warning is None
        assert row.search_s >= 0
    assert list(comparison.plans) == list(comparison.traces) == ["sequential", "greedy", "lios"]
    trace = comparison.traces["lios"]
    assert trace.makespan == 30.0
    assert (lios.sm_utilization, lios.sm_efficiency) == (trace.sm_utilization(), trace.sm_efficiency())
    nothing = compare(made("a=0"), FREE, ["lios", refuses]).summary()
    assert json.loads(json.dumps(nothing, allow_nan=False)) == nothing  # 0 / 0 is None


@pytest.mark.usefixtures("quick_search")
def test_sets():
    """`fast` leaves out what needs longer on so large a graph; both keep the order of `SCHEDULERS`."""
    small, large = FORK, OpGraph.from_columns([f"o{i}" for i in range(2000)], [], [], time=1.0)
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
    comparison = compare(FORK, FREE, ["lios", refuses])
    assert comparison.rows[1] == Row("refuses", reason="refuses: this graph has [too] many operators")
    assert "refuses" not in comparison.plans
    assert comparison.best().scheduler == "lios"
    assert "[too]" in str(comparison)
    nowhere = made([Operator("a", time=1.0, kernels=(Kernel(1, 1024, 200),))])  # 1024 threads x 200 registers
    assert all("does not fit on an SM" in row.reason for row in compare(nowhere, FREE, ["sequential", "lios"]).rows)
    for none in ([], [refuses]):
        comparison = compare(FORK, FREE, none)
        assert comparison.best() is None
        json.dumps(comparison.to_dict(), allow_nan=False)
        assert str(comparison)


def test_two_functions_of_one_name_keep_their_rows_and_plans():
    """Of the user's own; with twice the cost of everything each takes twice as long."""
    comparison = compare(
        FORK,
        FREE,
        [
            SCHEDULERS["lios"],
            lambda g, c, k: SCHEDULERS["lios"](g, c, k, streams=1),
            lambda g, c, k: SCHEDULERS["lios"](g, c, k, streams=2),
        ],
    )
    assert [row.makespan_us for row in comparison.rows] == [30.0, 70.0, 50.0]
    assert len(comparison.plans) == len({row.scheduler for row in comparison.rows}) == 3
    (row,) = compare(FORK, FREE, ["lios"], lambda op, device: 2 * op.time).rows
    assert (row.makespan_us, row.estimate_us, row.over_bound) == (60.0, 60.0, 1.0)


def test_progress():
    seen = []

    def talks(graph, cluster, cost, *, progress=None):
        progress("half of it")
        return SCHEDULERS["lios"](graph, cluster, cost)

    compare(FORK, FREE, ["lios", refuses, talks], progress=lambda name, doing: seen.append((name, doing)))
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
    graph = made(operators("a=1 b=1 c=1") + operators("d=1", utilization=0.5))
    comparison = compare(graph, FREE, ["lios"])
    assert comparison.summary()["graph"]["operators_without_load"] == 3
    assert "3 of 4 operators have neither kernels nor utilization" in str(comparison)


def test_the_part_of_the_time_that_is_a_bound_from_bytes_is_said():
    """30 of 40 us are of an operator of a kind that no importer knows."""
    known, guess = operators("a=10")[0], Operator("b", time=30.0, attributes={UNKNOWN: "com.acme.Foo"})
    said = "75.0 % of the time is a bound from bytes alone, of 1 operators of unknown kinds: com.acme.Foo"
    assert said in str(compare(made([known, guess]), FREE, ["lios"]))
    assert "bound from bytes" not in str(compare(made([known]), FREE, ["lios"]))


def test_memory_warning():
    """48 + 3 GiB of weights on an A40 of 48 GiB; on two of them neither is too small."""
    graph = made([Operator(name, time=1.0, weight_nbytes=gib * GIB) for name, gib in (("a", 48.0), ("b", 3.0))])
    comparison = compare(graph, Cluster.preset("a40", 2), ["sequential", "round-robin"])
    warning = "gpu0 needs 51.0 GiB but a40 has 48.0 GiB"
    found = [(row.peak_memory_bytes / GIB, row.warning) for row in comparison.rows]
    assert found == [(51.0, warning), (48.0, None)]
    assert f"warning: sequential: {warning}" in " ".join(str(comparison).split())


def test_percentiles_of_one_operator():
    """Those of its samples, which are those of `simulate_many` with a seed from the generator."""
    comparison = compare(chain(100.0), FREE, ["lios"], jitter=0.1, rng=5, samples=2000)
    seed = int(np.random.default_rng(5).integers(2**63))
    drawn = simulate_many(comparison.plans["lios"], FREE, 2000, jitter=0.1, rng=seed).values
    (row,) = comparison.rows
    assert comparison.samples["lios"].values.tolist() == drawn.tolist()
    assert (row.p50_us, row.p95_us, row.p99_us) == pytest.approx(tuple(np.percentile(drawn, [50, 95, 99])))
    assert row.makespan_us == 100.0


def test_samples_are_the_same_draws_for_every_scheduler():
    """Again, and with more workers, the same; of fewer samples the first ones."""
    asked = ["sequential", "lios", SCHEDULERS["sequential"]]
    first, again, three = (compare(FORK, FREE, asked, jitter=0.3, rng=1, samples=8, workers=n) for n in (1, 1, 3))
    assert list(first.samples) == ["sequential", "lios", "sequential (2)"]
    for name, drawn in first.samples.items():
        assert len(drawn) == 8
        for other in (again, three):
            np.testing.assert_array_equal(drawn.values, other.samples[name].values)
    np.testing.assert_array_equal(first.samples["sequential"].values, first.samples["sequential (2)"].values)
    shorter = compare(FORK, FREE, asked, jitter=0.3, rng=1, samples=3)
    np.testing.assert_array_equal(shorter.samples["lios"].values, first.samples["lios"].values[:3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples": 3}, "pass `jitter`"),
        ({"jitter": 0.1, "rng": 0}, "jitter is in samples alone"),
        ({"samples": 3, "jitter": 0.1}, "pass `rng`"),
        ({"samples": 0, "jitter": 0.1, "rng": 0}, "samples must be a whole number of at least 1, not 0"),
        ({"samples": 1.5, "jitter": 0.1, "rng": 0}, "samples must be a whole number"),
        ({"samples": 3, "jitter": 0.1, "rng": 0, "workers": 0}, "workers must be a whole number of at least 1, not 0"),
    ],
)
def test_samples_that_cannot_be_drawn(arguments, message):
    with pytest.raises(SimulationError, match=message):
        compare(FORK, FREE, ["lios"], **arguments)


def test_samples_in_the_table():
    """p50 and p99 right of the makespan, a dash where there is no schedule, and how they were drawn below."""
    found = compare(chain(100.0), FREE, ["lios", refuses], jitter=0.1, rng=0, samples=4)
    table, drawn = found.table(), found.samples["lios"].values
    *baselines, lios, refusal = table.rows
    assert [row[0] for row in baselines] == list(NAMES)
    assert table.headings[:6] == ("scheduler", "execution", "makespan us", "p50", "p99", "estimate")
    assert lios[2:5] == ("100.0", *(f"{np.percentile(drawn, q):.1f}" for q in (50, 99)))
    assert refusal == ("refuses", *["-"] * (len(table.headings) - 1))
    assert (table.best, table.dim) == (3, {4})
    text = str(found)
    assert "p50, p99 of 4 samples, jitter 10 %, seed 0; makespan and speedup without jitter" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 160
    plain = str(compare(chain(5000.0), FREE, ["lios"]))
    assert "makespan ms" in plain
    assert "p50" not in plain
    some = compare(chain(5.0), FREE, ["lios"], jitter={"o0": 1}, rng=np.random.default_rng(0), samples=np.int64(1))
    assert some.to_dict()["sampling"] == {"n": 1, "jitter": {"o0": 1.0}, "seed": None}
    assert str(some.sampling).startswith("1 sample, jitter of each")


def test_box_plot_of_a_comparison():
    """A box per schedule with its p50 as the line; the title says what was sampled, and how."""
    comparison = compare(FORK, FREE, ["sequential", refuses, "lios"], jitter=0.2, rng=3, samples=9)
    ax = comparison.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["sequential", "lios"]
    with pytest.raises(SimulationError, match="no samples to draw"):
        compare(FORK, FREE, ["lios"]).plot()
    medians = [line.get_xdata()[0] for line in ax.lines if line.get_linewidth() == 1.2]
    assert medians == pytest.approx([comparison.rows[0].p50_us, comparison.rows[2].p50_us])
    assert ax.figure.get_suptitle() == "net on 2 x a100\n9 samples, jitter 20 %, seed 3"


def test_rows_that_repeat_others_on_one_gpu_are_not_printed():
    """They are in the rows, in data frames and in files; and printed where they are named, or differ on two GPUs."""
    graph = workloads.from_spec("inception_v3")
    found = compare(graph, Cluster.preset("a100"), "fast")
    names = [row.scheduler for row in found.rows]
    repeated = {"sequential", "round-robin", "inter-lp", "inter-mr", "hios-mr"}
    assert repeated < set(names)
    shown = [row[0].removesuffix(" (slow)") for row in found.table().rows]
    assert shown == [*NAMES, *(name for name in names if name not in repeated)]
    assert "sequential, round-robin, inter-lp, inter-mr: as one stream on one GPU" in repr(found)
    assert "round-robin" in repr(compare(graph, Cluster.preset("a100"), ["sequential", "round-robin"]))
    assert "as one stream" not in repr(compare(graph, Cluster.preset("a100", 2), "fast"))


def again(comparison):
    """What a file of it holds."""
    return Comparison.from_dict(json.loads(json.dumps(comparison.to_dict(), allow_nan=False)))


def require_same(first, second):
    assert (second.to_dict(), str(second)) == (first.to_dict(), str(first))
    assert list(second.traces) == list(first.traces)
    for name, trace in first.traces.items():
        other = second.traces[name]
        for column in ("kind", "op", "device", "stream"):
            assert getattr(other, column).tolist() == getattr(trace, column).tolist()
        for column in ("start", "end", "ready", "solo"):
            np.testing.assert_allclose(getattr(other, column), getattr(trace, column), rtol=1e-9, atol=1e-9)
    drawn, again = ({name: row.values.tolist() for name, row in each.samples.items()} for each in (first, second))
    assert again == drawn


def test_what_is_written_by_hand():
    """sequential takes 10 + 3 x 20 = 70 us, lios 10 + 20 = 30 us; both run the one graph, which stands there once."""
    comparison = compare(FORK, FREE, ["sequential", "lios", refuses])
    data = comparison.to_dict()
    assert (data["format"], data["version"], data["graph"]) == ("simsched.comparison", 1, 0)
    assert [row["makespan_us"] for row in data["rows"]] == [70.0, 30.0, None]
    assert data["graphs"] == [FORK.to_dict()]
    assert data["cluster"] == FREE.to_dict()
    assert {name: plan["graph"] for name, plan in data["plans"].items()} == {"sequential": 0, "lios": 0}
    assert (data["sampling"], data["samples"]) == (None, {})
    found = again(comparison)
    require_same(comparison, found)
    assert found.plans["lios"].graph is found.plans["sequential"].graph is found.graph
    assert found.best().scheduler == "lios"


def test_rewritten_graphs_are_written_too():
    """AutoGraph runs a network of other operators than those that were compared."""
    graph = workloads.load("tiny_inception", batch=32)
    comparison = compare(graph, FREE, ["lios", "autograph"])
    sizes = [len(graph), len(comparison.plans["autograph"].graph)]
    assert [len(each["operators"]) for each in comparison.to_dict()["graphs"]] == sizes
    require_same(comparison, again(comparison))


def test_up_to_10_000_samples_of_a_schedule_are_in_the_file():
    """Of more the percentiles are."""
    for n, jitter, kept in ((7, 0.2, 7), (10_000, {"b": 1}, 10_000), (10_001, np.float32(0.5), 0)):
        comparison = compare(FORK, FREE, ["lios"], rng=np.random.default_rng(4), jitter=jitter, samples=n)
        found = again(comparison)
        assert sum(map(len, found.samples.values())) == kept
        assert (found.rows, found.sampling) == (comparison.rows, comparison.sampling)


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
    options=st.sampled_from([{}, {"jitter": 0.3, "samples": 4}]),
)
def test_any_comparison_comes_back(graph, n, options):
    names = ["sequential", "lios", "round-robin", refuses]
    comparison = compare(graph, Cluster.preset("a40", n), names, rng=1, **options)
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
        (lambda d: d["samples"]["lios"].pop(), "as many makespans of a schedule as 'sampling' says"),
        (lambda d: d["samples"].update(nobody=[1.0] * 3), r"samples\['nobody'\] must be as many"),
    ],
)
def test_what_was_spoilt_is_refused(change, message):
    with pytest.raises(SimschedError, match=message) as refused:
        Comparison.from_dict(spoilt(change), "c.json")
    assert "\n" not in str(refused.value)
