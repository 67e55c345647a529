"""Schedules: what is refused when they are made, and what `check` refuses afterwards."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_order import made, plan
from strategies import by_operator, graphs, schedules

from simsched.base.errors import ScheduleError
from simsched.base.io import dump_json, parse_json
from simsched.model import Cluster, Placement, Schedule
from simsched.model.graph import Numbered, OpGraph
from simsched.simulator import simulate
from validation.schedule_oracle import fault

TRIO = Cluster.preset("a100", 3)


# Making ------------------------------------------------------------------------------------------


A, B = Placement("a"), Placement("b")
MAX = 2**31
REFUSED = {
    "placement of 'x' names no operator of graph 'graph'": lambda: Schedule(made("ab"), [A, Placement("x")]),
    "operator 'b' is placed twice": lambda: Schedule(made("ab"), [A, B, B]),
    "operator 'a' is placed nowhere": lambda: Schedule(made("ab"), []),
    "operator 'b': stream must not be negative, not -1": lambda: Schedule(made("ab"), [A, replace(B, stream=-1)]),
    "operator 'b': group must not be negative, not -1": lambda: Schedule(made("ab"), [A, replace(B, group=-1)]),
    "placement of 'b': stage must be a whole number, not 1.5": lambda: replace(B, stage=1.5),
    "column 'priority' must hold whole numbers below 2^31": lambda: Schedule(made("ab"), [A, replace(B, priority=MAX)]),
    "execution must be one of stages, events, graph, not 'eager'": lambda: Schedule(made("ab"), [A, B], "eager"),
    "events must be one of minimal, literal, not 'all'": lambda: Schedule(made("ab"), [A, B], events="all"),
    "estimate must be finite and not negative, not nan": lambda: Schedule(made("ab"), [A, B], estimate=float("nan")),
    "estimate must be a number, not '4'": lambda: Schedule(made("ab"), [A, B], estimate="4"),
    "search['x'] must be a JSON value": lambda: Schedule(made("ab"), [A, B], search={"x": {1, 2}}),
    "operator 'b' is placed nowhere": lambda: Schedule.from_columns(made("ab"), [0], ["gpu0"]),
    "column 'op' must hold indices of the 2 operators": lambda: Schedule.from_columns(made("ab"), [0, 2], ["gpu0"]),
    "column 'op' must hold whole numbers": lambda: Schedule.from_columns(made("ab"), [[0, 1]], ["gpu0"]),
    "column 'device' must hold indices of the 1 devices": lambda: Schedule.from_columns(
        made("ab"), [0, 1], ["gpu0"], device=1
    ),
    "column 'device' must hold whole numbers": lambda: Schedule.from_columns(made("ab"), [0, 1], ["gpu0"], device=0.5),
    "column 'device' must have 2 rows": lambda: Schedule.from_columns(made("ab"), [0, 1], ["gpu0"], device=[0] * 3),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be(message):
    with pytest.raises(ScheduleError, match=re.escape(message)):
        REFUSED[message]()


def test_columns_make_the_same_schedule_as_rows():
    graph = made("ab ac")
    rows = Schedule(graph, [Placement("a", "g0"), Placement("c", "g1", 2, 1, 3, 4), Placement("b", "g0", 1)])
    columns = Schedule.from_columns(
        graph,
        [0, 2, 1],
        ["g0", "g1", "unused"],
        device=[0, 1, 0],
        stream=[0, 2, 1],
        stage=[0, 1, 0],
        group=[0, 3, 0],
        priority=[0, 4, 0],
    )
    assert columns == rows
    assert columns.devices_used == ("g0", "g1")
    assert (columns.n_streams, len(columns)) == (3, 3)


def test_devices_of_one_name_are_one_device():
    """Were they two, `check` would see two host threads where the program has one: b before a passes."""
    with pytest.raises(ScheduleError, match="gpu0"):
        Schedule.from_columns(made("ab"), [1, 0], ["gpu0", "gpu0"], device=[0, 1]).check(TRIO)


def test_a_schedule_cannot_be_changed():
    schedule = Schedule(made("ab"), [Placement("a"), Placement("b")])
    with pytest.raises(AttributeError, match="cannot be changed"):
        schedule.estimate = 3.0
    for key in ("op", "device", "stream", "stage", "group", "priority"):
        assert not getattr(schedule, key).flags.writeable


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_round_trips(data):
    """JSON text, pickle, and its own placements: the same schedule."""
    graph = data.draw(graphs(max_ops=5))
    schedule = data.draw(schedules(graph))
    text = dump_json(schedule.to_dict())
    again = Schedule.from_dict(parse_json(text))
    assert again == schedule
    assert dump_json(again.to_dict()) == text
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert Schedule(graph, list(schedule.placements), schedule.execution) == schedule


@given(data=st.data())
def test_a_schedule_like_another_differs_in_what_is_said(data):
    """Rows turned round, and back; the estimate goes unless it is said."""
    plan = data.draw(schedules(data.draw(graphs(max_ops=6))))
    assert plan.like(estimate=plan.estimate) == plan
    rows = np.arange(len(plan))[::-1]
    turned = plan.like(rows, scheduler="other", estimate=3.0)
    assert [*turned.placements] == [*plan.placements][::-1]
    assert (turned.scheduler, turned.estimate, turned.execution) == ("other", 3.0, plan.execution)
    assert turned.like(rows, scheduler=plan.scheduler, estimate=plan.estimate) == plan
    assert turned.like().estimate is None


def test_columns_take_32_bits_and_one_number_for_all_one_row():
    """Four columns of a constant, and two of 4 bytes per operator."""
    n = 10_000
    graph = OpGraph.from_columns(Numbered("op", n), [], [])
    schedule = Schedule.from_columns(graph, np.arange(n), ["gpu0", "gpu1"], device=np.arange(n) % 2, stage=1)
    columns = [getattr(schedule, key) for key in ("op", "device", "stream", "stage", "group", "priority")]
    assert [column.dtype for column in columns] == [np.int32] * 6
    assert [column.strides for column in columns] == [(4,), (4,), (0,), (0,), (0,), (0,)]
    assert set(schedule.stage) == {1}


def test_streams_of_the_largest_numbers_are_told_apart():
    """Device and stream make one key: 2 x 2^31 does not fit into 32 bits."""
    placements = [Placement("a", "gpu0", 2**31 - 1), Placement("b", "gpu1", 2**31 - 1), Placement("c", "gpu1", 0)]
    assert Schedule(made("ab bc"), placements).n_streams == 3


def test_a_schedule_says_its_event_plan_and_its_search(tmp_path):
    """a and b on one stream, c on another reads both: minimal waits for b alone, literal for each."""
    graph, rows = made("ac bc"), [Placement("a"), Placement("b"), Placement("c", stream=1)]
    search = {"states": 7, "stopped": None, "rules": {"R1": 2}, "sizes": (1, 2), "time_s": 0.25}
    minimal, literal = (Schedule(graph, rows, events=events, search=search) for events in ("minimal", "literal"))
    cluster = Cluster.preset("a100")
    assert [minimal.lower(cluster).n_syncs, literal.lower(cluster).n_syncs] == [1, 2]
    assert literal.lower(cluster, events="minimal").n_syncs == 1
    assert minimal != literal
    assert minimal == Schedule(graph, rows)  # the search is not part of the decision
    assert minimal.search == {"states": 7, "stopped": None, "rules": {"R1": 2}, "sizes": [1, 2], "time_s": 0.25}
    with pytest.raises(TypeError):
        minimal.search["states"] = 8
    literal.save(str(tmp_path / "plan.json"))
    again = Schedule.load(str(tmp_path / "plan.json"))
    assert (again, again.events) == (literal, "literal")
    assert again.search == {"states": 7, "stopped": None, "rules": {"R1": 2}, "sizes": [1, 2]}
    assert pickle.loads(pickle.dumps(literal)).search == literal.search


@pytest.mark.parametrize("estimate", [np.float32(4.0), np.float64(4.0), np.int64(4), 4])
def test_any_kind_of_number_is_an_estimate(estimate):
    """What is computed with numpy can be written to a file."""
    schedule = Schedule(made("ab"), [Placement("a"), Placement("b")], estimate=estimate)
    assert Schedule.from_dict(parse_json(dump_json(schedule.to_dict()))).estimate == 4.0


# Checking ----------------------------------------------------------------------------------------


def refusal(schedule, cluster=TRIO):
    with pytest.raises(ScheduleError) as caught:
        schedule.check(cluster)
    return str(caught.value)


def test_unknown_device():
    schedule = plan(made("ab"), "a 0 0, b 7 0")
    assert refusal(schedule) == "schedule of 'graph': operator 'b': unknown device 'gpu7'; known are: gpu0, gpu1, gpu2"
    assert schedule.check() is schedule


LATE = "operator 'b': it is launched before 'a', which it reads from"
CYCLE = "schedule of 'graph' can never finish: "
TWO_STREAMS = "operator 'b': its group uses more than one stream"
TWO_GROUPS = "operator 'b': its stream serves more than one group of the stage"
BESIDE = "operator 'b': it reads from 'a', which is in another group of the same stage"
CHECKED = [  # edges, placements, execution, and why not
    # one host thread: the event b waits for would not have been recorded, and the wait be none
    ("ab", "b 0 0, a 0 0", "events", LATE),
    ("ab", "b 0 0, a 0 0", "stages", LATE),
    ("ab", "b 0 0, a 0 1", "events", LATE),
    # two host threads sort it out, one that captures cannot
    ("ab", "b 1 0, a 0 0", "events", None),
    ("ab", "b 1 0, a 0 0", "graph", LATE),
    # gpu0 opens stage 1, with w, after x of stage 0, which reads from y; y on gpu1 is behind z, which reads from w
    ("yx wz", "x 0 0 0 0, v 0 1 0 1, w 0 0 1 0, z 1 0 0 0, y 1 0 1 0", "stages", CYCLE),
    ("", "a 0 0 1 0, b 0 0 0 0", "stages", "operator 'b': it is of stage 0 but launched after stage 1"),
    ("", "a 0 0 1 0, b 0 0 0 0", "events", None),  # stages are only numbers
    ("", "a 0 0 0 0, b 0 1 0 0", "stages", TWO_STREAMS),
    ("", "a 0 0 0 0, b 0 0 0 1", "stages", TWO_GROUPS),
    ("", "a 0 0 0 0, b 0 1 0 1", "stages", None),
    ("", "a 0 0 0 0, b 0 1 1 0", "stages", None),  # another stage, another stream
    ("", "a 0 0 0 0, b 1 1 0 0", "stages", None),  # another device
    ("ab", "a 0 0 0 0, b 0 1 0 1", "stages", BESIDE),
    ("ab", "a 0 0 0 0, b 0 0 0 0", "stages", None),
    ("ab", "a 0 0 0 0, b 1 1 0 1", "stages", None),  # on another device: a copy orders them
]


@pytest.mark.parametrize(("edges", "text", "execution", "why"), CHECKED)
def test_check_by_hand(edges, text, execution, why):
    names = sorted(row.split()[0] for row in text.split(","))
    schedule = plan(made(edges, names), text, execution)
    if why is None:
        schedule.check(TRIO)
    else:
        assert why in refusal(schedule)


def test_a_cycle_between_devices_names_them():
    """gpu0 launches b, which reads from c, before a; gpu1 launches d, which reads from a, before c: each waits."""
    message = refusal(plan(made("cb ad"), "b 0 0, d 1 0, a 0 0, c 1 0"))
    assert message.startswith(CYCLE)
    shown = message.split("finish: ")[1].split(" -> ")
    assert shown[0] == shown[-1]
    for text in ("'a' on gpu0", "'b' on gpu0", "'c' on gpu1", "'d' on gpu1"):
        assert any(text in step for step in shown)


# Against an oracle -------------------------------------------------------------------------------


def accepted(schedule):
    """Whether `check` accepts a schedule on three devices."""
    try:
        schedule.check(TRIO)
    except ScheduleError:
        return False
    return True


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_check_refuses_what_cannot_run_and_nothing_else(data):
    """The oracle plays the schedule through token by token."""
    schedule = data.draw(schedules(data.draw(graphs(max_ops=6))))
    edges = [(edge.src, edge.dst) for edge in schedule.graph.edges]
    devices = [device.name for device in TRIO.devices]
    wrong = fault(schedule.graph.names, edges, schedule.placements, schedule.execution, devices)
    assert accepted(schedule) == (wrong is None)


OPTIONS = [(t, c, e) for t in ("device", "one") for c in ("async", "blocking") for e in ("minimal", "literal")]


@settings(deadline=None, max_examples=100)
@given(data=st.data(), overheads=st.booleans())
def test_what_check_accepts_runs_and_keeps_every_dependency(data, overheads):
    """However it is lowered: every operator runs once, behind all it reads from, exact transfers included."""
    schedule = data.draw(schedules(data.draw(graphs(max_ops=6, timed=True))))
    cluster = TRIO if overheads else TRIO.without_overheads()
    if not accepted(schedule):
        return
    cluster = cluster.replace_devices(connections=data.draw(st.sampled_from([1, 2, 32])))
    threads, transfers, events = data.draw(st.sampled_from(OPTIONS))
    place = {row.op: i for i, row in enumerate(schedule.placements)}
    backwards = any(place[edge.src] > place[edge.dst] for edge in schedule.graph.edges)
    if (threads == "one" and backwards) or (schedule.execution == "graph" and transfers == "blocking"):
        with pytest.raises(ScheduleError):  # an order that only several threads can issue; a graph that blocks
            schedule.lower(cluster, threads=threads, transfers=transfers, events=events)
        return
    program = schedule.lower(cluster, threads=threads, transfers=transfers, events=events)
    trace = simulate(program.check(), cluster)
    times, at = trace.operator_times(), by_operator(schedule)
    for edge in schedule.graph.edges:
        ends = at[edge.src].device, at[edge.dst].device
        moved = cluster.transfer_time(*ends, edge.nbytes, edge.transfer)
        assert times[edge.src][1] + moved <= times[edge.dst][0] + 1e-6, edge
