"""Duels: graphs on which one scheduler loses to another, within stated bounds, found again, kept and replayed."""

import json
import signal
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simsched as ss
import workloads
from simsched.base.errors import FormatError, SchedulerError, WhatIfError
from simsched.experiments.duel import ROUND, Space, duel
from simsched.model.graph import Kernel
from simsched.show.report.sections import sections_of
from simsched.show.results import chart_of

FREE = ss.Cluster.preset("a100").without_overheads()
WIDE = ss.OpGraph([ss.Operator(name, time=10.0, utilization=0.25) for name in "abc"], name="wide")


def start(seed):
    return workloads.load("random:layered", n_ops=8, n_layers=4, seed=seed)


def slower(graph, cluster, cost):
    """One operator after the other."""
    return ss.schedule(graph, cluster, "sequential")


def test_the_start_is_the_first_graph():
    """Three operators of 10 us that fit side by side: 30 us in a row, 10 us in three streams."""
    found = ss.duel(WIDE, FREE, "sequential", "lios", evaluations=1)
    assert (found.losing_us, found.winning_us, found.factor) == (30.0, 10.0, 3.0)
    assert (found.loser, found.winner, found.evaluations, found.found_at, found.start) == (
        "sequential",
        "lios",
        1,
        1,
        "duel-3",
    )
    assert found.reasons[0] == "On its critical path sequential has 20 us more compute."
    assert [row["sequential"] - row["lios"] for row in found.records() if row["cause"] in ("compute", "makespan")] == [
        20,
        20,
    ]


def test_the_search_finds_more_than_the_start():
    """A chain gains nothing by streams; four operators side by side take a fourth of the time at best."""
    chain = ss.OpGraph(
        [ss.Operator(f"o{i}", time=10.0, utilization=0.1) for i in range(4)],
        [ss.Edge(f"o{i}", f"o{i + 1}") for i in range(3)],
    )
    found = ss.duel(chain, FREE, "sequential", "lios", evaluations=400)
    assert ss.duel(chain, FREE, "sequential", "lios", evaluations=1).factor == pytest.approx(1.0)
    assert 2.0 < found.factor <= 4.0
    assert found.found_at <= found.evaluations == 400


@pytest.mark.parametrize(("loser", "winner"), [("heft", "peft"), ("lios-rand", "lios")])
def test_equal_seeds_and_evaluations_find_the_same(loser, winner):
    """Schedulers that draw, too."""
    cluster = ss.Cluster.preset("a40", 2)
    one, again, other = (ss.duel(start, cluster, loser, winner, evaluations=60, rng=seed) for seed in (3, 3, 4))
    assert one.to_dict() == again.to_dict()
    assert one.graph != other.graph


def test_more_evaluations_never_find_less():
    """What was found by then is found again; also past the end of rounds."""
    ns = (1, 5, 40, ROUND, ROUND + 1, 2 * ROUND + 30)
    factors = [ss.duel(start, FREE, "lios", "sequential", evaluations=n).factor for n in ns]
    assert factors == sorted(factors)
    assert all(factor > 0 for factor in factors)


spaces = st.builds(
    Space,
    time=st.tuples(st.floats(1, 20).map(round), st.floats(50, 500).map(round)),
    utilization=st.tuples(st.sampled_from([0.1, 0.3]), st.sampled_from([0.5, 1.0])),
    blocks=st.tuples(st.integers(1, 4), st.integers(8, 64)),
    nbytes=st.tuples(st.sampled_from([1.0, 1e3]), st.sampled_from([1e4, 1e7])),
    degree=st.integers(1, 3),
)


@settings(max_examples=20)
@given(space=spaces, seed=st.integers(0, 100))
def test_graphs_stay_in_the_space(space, seed):
    """Whatever the start is; a graph is valid, and has as many operators as the start."""
    found = ss.duel(start, FREE, "sequential", "heft", evaluations=25, rng=seed, space=space)
    graph = found.graph
    assert len(graph) == 8
    for operator in graph.operators:
        assert space.time[0] <= operator.time <= space.time[1]
        if operator.kernels:
            (kernel,) = operator.kernels
            assert space.blocks[0] <= kernel.blocks <= space.blocks[1]
            assert kernel.threads in space.threads
        else:
            assert space.utilization[0] <= operator.utilization <= space.utilization[1]
    for edge in graph.edges:
        assert space.nbytes[0] <= edge.nbytes <= space.nbytes[1]
        assert edge.nbytes <= max(space.nbytes[0], graph[edge.src].time * FREE.devices[0].bandwidth)
        assert edge.transfer is None
        assert sum(other.src == edge.src for other in graph.edges) <= space.degree
        assert sum(other.dst == edge.dst for other in graph.edges) <= space.degree


def test_a_start_with_kernels_and_transfers():
    """The kernel that takes most of an operator's time stands for it; exact transfers become bytes."""
    kernels = (Kernel(100, 64, share=0.25), Kernel(10_000, 128, share=0.75))
    graph = ss.OpGraph(
        [ss.Operator("a", time=5.0, kernels=kernels), ss.Operator("b", time=5.0)], [ss.Edge("a", "b", transfer=2.0)]
    )
    found = ss.duel(graph, FREE, "sequential", "lios", evaluations=1).graph
    assert found["a"].kernels == (Kernel(4096, 128),)
    assert found["b"].utilization == pytest.approx(0.525)
    assert [edge.nbytes for edge in found.edges] == [50_000.0]


def test_files_and_replays(tmp_path):
    """What is read is what was written, and simulates to the same bits; one that was tampered with does not."""
    found = ss.duel(start, ss.Cluster.preset("a40", 2), "hios-lp", "heft", evaluations=40)
    found.save(tmp_path / "duel.json")
    again = ss.Duel.load(tmp_path / "duel.json")
    assert again.to_dict() == found.to_dict()
    assert (again.replay().factor, again.replay().to_dict()) == (found.factor, found.to_dict())
    assert replace(found, losing_us=1.0).replay().factor == found.factor
    assert again.replay().losing_us == ss.simulate(found.losing, found.cluster).makespan
    data = json.loads((tmp_path / "duel.json").read_text())
    for change in ({"winning_us": 0.0}, {"space": {**data["space"], "time": [5, 1]}}, {"seed": -1}):
        with pytest.raises((FormatError, WhatIfError)):
            ss.Duel.from_dict({**data, **change})


def test_commands_read_the_graph_of_a_duel(tmp_path):
    found = ss.duel(WIDE, FREE, "sequential", "lios", evaluations=3)
    path = str(tmp_path / "duel.json")
    found.save(path)
    assert workloads.from_spec(path) == found.graph == workloads.read_spec(path)


def test_functions_fight_too():
    """Under their names; of two of one name the second has a number."""
    assert ss.duel(WIDE, FREE, slower, "lios", evaluations=1).loser == "slower"
    found = ss.duel(WIDE, FREE, slower, slower, evaluations=2)
    assert list(found.plans) == ["slower", "slower (2)"]
    assert found.factor == 1.0


def test_pages_and_pictures():
    found = ss.duel(WIDE, FREE, "sequential", "lios", evaluations=1)
    assert "sequential takes 3.000 times as long as lios: 3 operators, 0 edges" in str(found)
    assert "from duel-3, seed 0, evaluation 1 of 1" in str(found)
    assert chart_of(found).title.endswith("3 times as long")
    assert len(sections_of(found)) == 3


def refuses(graph, cluster, cost):
    raise SchedulerError("not today; come again")


def test_what_cannot_be_fought():
    for arguments, error, message in [
        ((WIDE, FREE, "lios", "heft"), WhatIfError, "a duel needs an end: give `evaluations` or `seconds`"),
        (
            (WIDE, FREE, refuses, "heft", 3),
            SchedulerError,
            "no graph was found that both schedule: not today; come again",
        ),
    ]:
        with pytest.raises(error, match=message):
            duel(*arguments[:4], evaluations=arguments[4] if len(arguments) > 4 else None)
    with pytest.raises(WhatIfError, match="time must be two numbers above 0, the least first, not 5"):
        Space(time=(5, 1))
    with pytest.raises(WhatIfError, match=r"utilization is at most 1, not 2"):
        Space(utilization=(0.5, 2))
    with pytest.raises(WhatIfError, match="threads and registers must have at least one"):
        Space(threads=())


def test_an_end_by_the_clock():
    """No time at all is one graph."""
    assert ss.duel(WIDE, FREE, "sequential", "lios", seconds=0.0).evaluations == 1


def test_ctrl_c_ends_a_search_with_what_it_has(caplog):
    """The first one, as in other searches."""

    def interrupt(n, _):
        if n == 3:
            signal.raise_signal(signal.SIGINT)

    found = ss.duel(WIDE, FREE, "sequential", "lios", evaluations=1000, progress=interrupt)
    assert found.evaluations == 3
    assert found.factor >= 3.0
    assert "duel: stopped (interrupted)" in caplog.text
