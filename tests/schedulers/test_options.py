"""Options of schedulers: each is what its type hint says, or is refused with its name and the value."""

from functools import partial

import numpy as np
import pytest

from simsched.base.errors import SchedulerError
from simsched.model import Cluster, Operator, OpGraph
from simsched.optimum import optimal
from simsched.schedulers import SCHEDULERS, schedule

GRAPH = OpGraph([Operator("a", time=3.0, utilization=0.5)])
CLUSTER = Cluster.preset("a100", 2)
NAN, INF = float("nan"), float("inf")
WHOLE = (0, -1, 2.5, "2", NAN, INF, True)
"""What is no whole number of at least 1."""
LIOS = ("lios", "lios-rand1", "lios-rand2", "lios-rand")
WRONG = {
    "streams": (("round-robin", "greedy", *LIOS, "heft", "peft", "etf"), WHOLE),
    "w": (("hios-lp", "hios-mr"), (*WHOLE, None)),
    "r": (("ios",), WHOLE),
    "s": (("ios",), WHOLE),
    "max_part": (("ios",), (*WHOLE, None)),
    "max_transitions": (("ios",), (*WHOLE, None)),
    "max_stages": (("ios",), (*WHOLE, None)),
    "max_streams": (("opara", "nimble"), WHOLE),
    "size_u": (("autograph",), WHOLE),
    "size_l": (("autograph",), (1, *WHOLE)),
    "top": (("autograph",), WHOLE),
    "budget": (("autograph",), (*WHOLE, None)),
    "rounds": (("autograph",), WHOLE),
    "evaluations": (("search",), (*WHOLE, None)),
    "time_limit": (("ios", "autograph", "search"), (0, -1.0, NAN, "5", True)),
    "alpha": (("autograph",), (-0.1, NAN, INF, "much", None)),
    "beta": (("autograph",), (0.9, NAN, INF)),
    "insertion": (("heft", "peft"), (1, None, "yes")),
    "overheads": (LIOS, (1, None, "no")),
    "dp": (("autograph",), (1, None)),
    "rng": (("lios-rand1", "lios-rand2", "lios-rand", "search"), (-1, 0.5, None, "0", True)),
    "mode": (("ios", "opara", "nimble", "hios-lp", "hios-mr", "inter-lp", "inter-mr"), ("code", None, ["paper"], 1)),
    "rank": (("lios", "lios-rand2"), ("Time", None, ["time"], 3)),
    "strategy": (("ios",), ("all", None)),
    "endings": (("ios",), ("some", 1)),
    "blocks": (("ios",), (["labels"], None)),
    "allocation": (("opara",), ("arxiv",)),
    "order": (("opara",), (1,)),
    "metric": (("opara",), ("smem",)),
    "classes": (("opara",), ("all",)),
    "objective": (("autograph",), ("time",)),
    "execution": (("search",), ("eager",)),
    "measure": (("autograph",), (3.0, "simulated")),
    "progress": (("autograph", "search"), (5,)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "option", "values"), [(name, option, wrong) for option, (names, wrong) in WRONG.items() for name in names]
)
def test_an_option_that_is_not_what_its_hint_says(name, option, values):
    """By name, by function and in a partial one; the error says the scheduler, the option and the value."""
    for value in values:
        wrong = {option: value}
        for scheduler, given in ((name, wrong), (SCHEDULERS[name], wrong), (partial(SCHEDULERS[name], **wrong), {})):
            with pytest.raises(SchedulerError) as caught:
                schedule(GRAPH, CLUSTER, scheduler, **given)
            assert f"{name if given else 'partial'}: {option} must be " in str(caught.value)
            assert str(caught.value).endswith(f", not {value!r}")


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("heft", {"streams": 0}, "heft: streams must be a whole number of at least 1, not 0"),
        ("ios", {"endings": "some"}, "ios: endings must be one of exact, single_root, not 'some'"),
        ("heft", {"insertion": 1}, "heft: insertion must be true or false, not 1"),
    ],
)
def test_what_an_error_says(name, options, text):
    with pytest.raises(SchedulerError) as caught:
        schedule(GRAPH, CLUSTER, name, **options)
    assert str(caught.value) == text


def test_numbers_of_numpy_are_numbers():
    options = {"streams": np.int64(2), "overheads": np.bool_(True), "rng": np.random.default_rng(1)}
    assert schedule(GRAPH, CLUSTER, "lios-rand", **options) == schedule(
        GRAPH, CLUSTER, "lios-rand", streams=2, overheads=True, rng=1
    )


@pytest.mark.parametrize(
    ("option", "values"),
    [("streams", WHOLE), ("workers", WHOLE), ("time_limit", (0, NAN, "5")), ("budget", (0, NAN)), ("rng", ("x", -1))],
)
def test_options_of_the_optimum(option, values):
    for value in values:
        with pytest.raises(SchedulerError, match=f"^optimal: {option} must be "):
            optimal(GRAPH, CLUSTER, **{option: value})
