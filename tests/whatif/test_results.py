"""Documents of analyses that cannot be."""

import pytest

import simsched as ss
from simsched.base.errors import SimschedError
from simsched.experiments.whatif.breakeven import BreakEven, breakeven
from simsched.experiments.whatif.explain import Explanation, explain
from simsched.experiments.whatif.robust import Robustness, robust
from simsched.experiments.whatif.sensitivity import Sensitivity, sensitivity
from simsched.experiments.whatif.sweep import Sweep, sweep
from simsched.experiments.whatif.throughput import Throughput, throughput
from simsched.experiments.whatif.whatif import what_if

CLUSTER = ss.Cluster.preset("k80", 2)
GRAPH = ss.OpGraph(
    [ss.Operator("a", "conv", time=50.0, utilization=0.5), ss.Operator("b", time=50.0), ss.Operator("c", time=9.0)],
    [ss.Edge("a", "c"), ss.Edge("b", "c", nbytes=20_000)],
)
PLAN = ss.Schedule(GRAPH, [ss.Placement("a"), ss.Placement("b", "gpu1"), ss.Placement("c")])
ONE = ss.schedule(GRAPH, CLUSTER, "sequential")
MAKE = {
    "sweep": (Sweep, lambda: sweep(what_if(PLAN, CLUSTER), "gpus", [1, 2])),
    "sweep-2": (
        Sweep,
        lambda: sweep(what_if(PLAN, CLUSTER), "link.bandwidth", [1, ss.absolute(400.0)], "gpus", [1, 2]),
    ),
    "sensitivity": (Sensitivity, lambda: sensitivity(PLAN, CLUSTER)),
    "breakeven": (BreakEven, lambda: breakeven("link.bandwidth", ONE, PLAN, CLUSTER)),
    "explanation": (Explanation, lambda: explain(PLAN, CLUSTER)),
    "robustness": (Robustness, lambda: robust([ONE, PLAN], CLUSTER, jitter={"a": 0.1}, samples=9, rng=1)),
    "throughput": (Throughput, lambda: throughput(PLAN, CLUSTER, 2)),
}
each_result = pytest.mark.parametrize("name", MAKE)


@pytest.fixture(scope="module")
def made():
    found = {}

    def get(name):
        if name not in found:
            found[name] = MAKE[name][1]()
        return found[name]

    return get


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("sweep", {"reasons": [[2, 0, "why"]]}, "reasons must be"),
        ("sweep", {"reasons": [[-1, 0, "why"]]}, "reasons[0][0] must be"),
        ("sweep", {"reasons": [[0, 1, "why"]]}, "reasons must be"),
        ("sweep", {"reasons": [[0, -1, "why"]]}, "reasons[0][1] must be"),
        ("sweep-2", {"reasons": [[0, 2, "why"]]}, "reasons must be"),
        ("sweep-2", {"reasons": [[0, 0, "why"], [1, 1, "why"]]}, None),
        ("sweep", {"reasons": [[1, 0, "why"]]}, None),
        ("robustness", {"rows": [], "samples": {}}, "there must be rows, and samples of each"),
        ("robustness", {"samples": {"sequential": [1.0], "custom": []}}, "there must be rows, and samples of each"),
        ("robustness", {"samples": {"custom": [1.0], "sequential": [1.0]}}, "samples of each, in the same order"),
    ],
)
def test_parts_of_a_document_that_do_not_fit(name, edit, message, made):
    """Two values have places 0 and 1, none beyond; one parameter has a second place of 0."""
    text = _refusal(MAKE[name][0], made(name).to_dict() | edit)
    assert text is None if message is None else message in text


def _refusal(kind, document):
    """Why a document is refused; one that is not can be shown."""
    try:
        repr(kind.from_dict(document, "x.json"))
    except SimschedError as error:
        return str(error)
    return None
