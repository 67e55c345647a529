"""Options of schedulers: each is what its type hint says, or is refused with its name and the value."""

from functools import partial
from inspect import signature

import numpy as np
import pytest
from small import made

from simsched.base.errors import SchedulerError
from simsched.model import Cluster, Operator, OpGraph
from simsched.optimum import optimal
from simsched.schedulers import SCHEDULERS, schedule

GRAPH = OpGraph([Operator("a", time=3.0, utilization=0.5)])
CLUSTER = Cluster.preset("a100", 2)
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
