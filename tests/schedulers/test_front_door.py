"""`schedule`: schedulers by name, function and path; their options, and what is made of what they return."""

from functools import partial
from inspect import signature

import numpy as np
import pytest
from small import convolutions, made, merging, placements

from simsched.base.errors import CostError, ScheduleError, SchedulerError, SimschedError, UnknownNameError
from simsched.model import Cluster, Placement, Schedule
from simsched.optimum import optimal
from simsched.schedulers import SCHEDULERS, resolve, schedule, scheduler_name

GRAPH = made("a=3 b=5 c=4", "ab ac")
CLUSTER = Cluster.preset("a100", 2)


def one_by_one(graph, cluster, cost, *, device="gpu0"):
    return Schedule(graph, [Placement(name, device) for name in graph.order], estimate=12.0, scheduler="mine")


class Callable:
    def __call__(self, graph, cluster, cost):
        return one_by_one(graph, cluster, cost)


def test_a_function_of_the_user():
    assert schedule(GRAPH, CLUSTER, one_by_one).placements[0] == Placement("a", "gpu0")
    assert schedule(GRAPH, CLUSTER, one_by_one, device="gpu1").devices_used == ("gpu1",)
    assert schedule(GRAPH, CLUSTER, Callable()).estimate == 12.0
    assert schedule(GRAPH, CLUSTER, partial(one_by_one, device="gpu1")).devices_used == ("gpu1",)
    assert len(schedule(GRAPH, CLUSTER, needing, need=1)) == 3
    assert schedule(GRAPH, CLUSTER, one_by_one).scheduler == "mine"


def test_a_schedule_that_does_not_say_who_made_it_has_the_name_of_the_function():
    def nameless(graph, cluster, cost):
        return Schedule(graph, [Placement(name) for name in graph.order])

    assert schedule(GRAPH, CLUSTER, nameless).scheduler == "nameless"
    assert schedule(GRAPH, CLUSTER, "sequential").scheduler == "sequential"


def test_names():
    assert [scheduler_name(function) for function in SCHEDULERS.values()] == list(SCHEDULERS)
    assert scheduler_name("lios") == "lios"
    assert scheduler_name(one_by_one) == "one_by_one"
    assert scheduler_name(Callable()) == "Callable"
    assert scheduler_name(partial(one_by_one, device="gpu1")) == "partial"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Modules of the user's that fail."""
    (tmp_path / "my_broken.py").write_text("raise RuntimeError('out of luck')\n")
    (tmp_path / "my_typo.py").write_text("def mine(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_scheduler_by_path():
    path = f"{__name__}:one_by_one"
    assert schedule(GRAPH, CLUSTER, path).scheduler == "mine"
    assert resolve("simsched.schedulers.lios:lios") is SCHEDULERS["lios"]
    assert scheduler_name(path) == path


def needing(graph, cluster, cost, *, need):
    return one_by_one(graph, cluster, cost)


def no_schedule(graph, cluster, cost):
    return {"a": 0}


KNOWN = len(SCHEDULERS) + 1  # and package.module:function


@pytest.mark.parametrize(
    ("scheduler", "options", "message"),
    [
        ("heft2", {}, f"unknown scheduler 'heft2'; closest of {KNOWN} known: heft, "),
        (5, {}, "5 is no function of .*not a callable"),
        (f"{__name__}:CLUSTER", {}, "CLUSTER' is no function"),
        ("builtins:dict", {}, "'builtins:dict' is no function of .*: no signature"),
        (f"{__name__}:nothing", {}, f"cannot import scheduler '{__name__}:nothing': .*has no attribute 'nothing'"),
        ("my_missing:mine", {}, "cannot import scheduler 'my_missing:mine': .*No module named 'my_missing'"),
        ("my_broken:mine", {}, "cannot import scheduler 'my_broken:mine': .*out of luck"),
        ("my_typo:mine", {}, "cannot import scheduler 'my_typo:mine': .*invalid syntax"),
        (":mine", {}, "cannot import scheduler ':mine': "),
        ("sys:", {}, "cannot import scheduler 'sys:': "),
        ("lios", {"strems": 3}, "scheduler 'lios' has no option 'strems'; known are: streams"),
        ("sequential", {"streams": 3}, "scheduler 'sequential' has no option 'streams'; known are: none"),
        (one_by_one, {"gpu": 3}, "scheduler 'one_by_one' has no option 'gpu'; known are: device"),
        (needing, {}, "need"),
        (no_schedule, {}, "scheduler 'no_schedule' returned dict, not a Schedule"),
        (one_by_one, {"device": "gpu9"}, "unknown device 'gpu9'"),
        ("heft", {"streams": 0}, "^heft: streams must be a whole number of at least 1, not 0$"),
        ("heft", {"insertion": 1}, "^heft: insertion must be true or false, not 1$"),
        ("ios", {"endings": "some"}, "^ios: endings must be one of exact, single_root, not 'some'$"),
        ("ios", {"strategy": "merge"}, "'merge' finds nothing in 'graph' that can be merged: .* strategy='para"),
        (
            "opara",
            {},
            r"^opara: no operator of graph 'graph' has what metric='utilization' reads, "
            r"Operator\(utilization=...\); give that, another metric, or order='graph'$",
        ),
        ("opara", {"mode": "impl", "metric": "threads"}, r"metric='threads' reads, Operator\(kernels=...\)"),
        ("search", {"starts": 3}, "search: starts must be names of schedulers or schedules, not 3"),
        ("search", {"starts": [3]}, r"search: starts must be names of schedulers or schedules, not \[3\]"),
        ("search", {"starts": ("lois",)}, "unknown scheduler 'lois'"),
        ("search", {"starts": [Schedule(GRAPH, placements("a@7 b c"))]}, "unknown device 'gpu7'"),
        # nothing could ever be rewritten, and nobody would know why
        ("autograph", {}, r"autograph: operator 'a' has no shapes.* give .*`output_shape`.*rules=\(\)"),
        ("autograph", {"rules": ["R99"]}, "autograph: rules has no 'R99'"),
        ("autograph", {"rules": "R1"}, "autograph: rules must be a list of names"),
        ("autograph", {"rules": [3]}, "autograph: rules has no 3; known are: R1, R2, "),
        (
            "autograph",
            {"rules": (), "measure": lambda _: None},
            "autograph: measure must return a time in us, not None",
        ),
    ],
)
def test_what_is_refused(module, scheduler, options, message):
    with pytest.raises(SimschedError, match=message) as caught:
        schedule(GRAPH, CLUSTER, scheduler, **options)
    assert isinstance(caught.value, SchedulerError | ScheduleError | UnknownNameError)
    assert "\n" not in str(caught.value)


def test_a_scheduler_may_rewrite_the_graph():
    """If it says how; `tests/rewriting/test_accounting.py` has what is refused."""
    assert schedule(convolutions(), CLUSTER, merging).graph.names == ("a", "b+c", "join")


@pytest.mark.parametrize("answer", [float("nan"), -1.0, float("inf"), None, "three"])
@pytest.mark.parametrize("name", ["sequential", "lios", "inter-lp"])
def test_a_cost_model_that_answers_junk(name, answer):
    with pytest.raises(CostError, match=r"the cost model says operator 'a' takes .* us on a100"):
        schedule(GRAPH, CLUSTER, name, lambda op, device: answer)


NAN, INF = float("nan"), float("inf")
WHOLE = (0, -1, 2.5, "2", NAN, INF, True)
"""What is no whole number of at least 1."""
WRONG = {
    **dict.fromkeys(("streams", "r", "s", "max_streams", "size_u", "top", "rounds"), WHOLE),
    **dict.fromkeys(("w", "max_part", "max_transitions", "max_stages", "budget", "evaluations"), (*WHOLE, None)),
    **dict.fromkeys(("insertion", "overheads", "dp"), (1, None, "yes")),
    "size_l": (1, *WHOLE),
    "time_limit": (0, -1.0, NAN, "5", True),
    "alpha": (-0.1, NAN, INF, "much", None),
    "beta": (0.9, NAN, INF),
    "rng": (-1, 0.5, None, "0", True),
    "mode": ("code", None, ["paper"], 1),
    "rank": ("Time", None, ["time"], 3),
    "strategy": ("all", None),
    "endings": ("some", 1),
    "blocks": (["labels"], None),
    "allocation": ("arxiv",),
    "order": (1,),
    "metric": ("smem",),
    "classes": ("all",),
    "objective": ("time",),
    "execution": ("eager",),
    "measure": (3.0, "simulated"),
    "progress": (5,),
}
ELSEWHERE = ("stage_latency", "rules", "starts", "also")
"""Options that their schedulers look at themselves."""


@pytest.mark.parametrize("name", SCHEDULERS)
def test_an_option_that_is_not_what_its_hint_says(name):
    """By name, by function and in a partial one; the error says the scheduler, the option and the value."""
    options = [p.name for p in signature(SCHEDULERS[name]).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        for value in WRONG[option] if option not in ELSEWHERE else ():
            wrong = {option: value}
            for scheduler, given in (
                (name, wrong),
                (SCHEDULERS[name], wrong),
                (partial(SCHEDULERS[name], **wrong), {}),
            ):
                with pytest.raises(SchedulerError) as caught:
                    schedule(GRAPH, CLUSTER, scheduler, **given)
                assert f"{name if given else 'partial'}: {option} must be " in str(caught.value)
                assert str(caught.value).endswith(f", not {value!r}")


def test_numbers_of_numpy_are_numbers():
    options = {"streams": np.int64(2), "overheads": np.bool_(True), "rng": np.random.default_rng(1)}
    assert schedule(GRAPH, CLUSTER, "lios-rand", **options) == schedule(
        GRAPH, CLUSTER, "lios-rand", streams=2, overheads=True, rng=1
    )


@pytest.mark.parametrize(("option", "value"), [("streams", 0), ("workers", 2.5), ("budget", NAN), ("rng", "x")])
def test_options_of_the_optimum(option, value):
    with pytest.raises(SchedulerError, match=f"^optimal: {option} must be "):
        optimal(made("a=3"), CLUSTER, **{option: value})
