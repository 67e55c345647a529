"""HIOS's claims about its simulated figures, 7 to 11, as printed, against the correct model."""

from collections.abc import Callable, Mapping
from functools import partial
from statistics import mean
from typing import Final

from validation.papers.claims import SAME_MODEL, Between, Claim, Rule, Run, Values
from validation.papers.hios_simulated import latencies, over, speedups, stages_gain

EVALUATOR: Final = (
    "the released evaluator lets operators wait for all that is on the GPUs of their producers, in an order that is "
    "not topological; rebuilt, it says "
)
PLACES: Final[Mapping[int, tuple[float, ...]]] = {
    7: (2, 4, 6, 8, 10, 12), 8: (100, 200, 300, 400), 9: (400, 450, 500, 550, 600), 10: (6, 10, 14, 18, 22),
    11: (0.4, 0.6, 0.8, 1.0, 1.2),
}  # fmt: skip
"""On the axes of the figures."""


def baselines(run: Run) -> Values:
    """Return the makespans in ms of one operator after the other and of IOS, mean over the places of Fig. 10."""
    return {name: mean(latencies(10, name, run).values()) for name in ("sequential", "ios")}


def extremes(measure: Callable[[Run], Values], run: Run) -> Values:
    """Return values with the least and the most of them."""
    found = measure(run)
    return {"least": min(found.values()), "most": max(found.values()), **found}


def recorded(run: Run) -> Values:
    """Return the makespans in ms of HIOS-MR at all places of Fig. 10."""
    return latencies(10, "hios-mr", run)


_SAYS: Final[Mapping[str, str]] = {
    "hios-fig7-lp": "1.34 and 3.66; its mappings (inter-LP) come to 1.74 and 4.91 if evaluated correctly",
    "hios-fig7-lp-ios": "1.21 and 3.30",
    "hios-fig7-mr": "0.99 to 1.42; its mappings (inter-MR) come to 1.94 to 3.52 if evaluated correctly",
    "hios-fig8-lp": "1.82, 1.96 and 2.06 for 100, 200 and 400 operators",
    "hios-fig8-lp-ios": "1.64, 1.77 and 1.85 for 100, 200 and 400 operators",
    "hios-fig8-lp-mr": "1.47, 1.53 and 1.60 for 100, 200 and 400 operators",
    "hios-fig8-lp-inter": "1.06, 1.06 and 1.07 for 100, 200 and 400 operators",
    "hios-fig8-stages-lp": "5.5, 5.6 and 6.8 % for 100, 200 and 400 operators",
    "hios-fig8-stages-mr": "13.7, 14.1 and 14.0 % for 100, 200 and 400 operators",
    "hios-fig9-lp": "1.96 and 1.55",
    "hios-fig9-mr": "1.28 and 1.11",
    "hios-fig10-mr": "305, 326, 321 and 324 ms for 6 to 18 layers",
    "hios-fig10-lp": "171 and 237 ms, of speedups of 2.41 and 1.73",
    "hios-fig11-lp": "2.25 and 1.78",
    "hios-fig11-mr": "1.50 and 1.10",
}
"""What the rebuilt evaluator makes of the released mappings, by claim; from the claims on the released code."""


def _printed(
    key: str, figure: int, what: str, published: Values, rule: Rule, measure: Callable[[Run], Values],
    unit: str = "x", read: str = "the text",
) -> Claim:  # fmt: skip
    command = f"simsched study run validation/papers/hios_fig{figure}.toml -o FOLDER"
    key = f"hios-fig{figure}-{key}"
    because = EVALUATOR + _SAYS[key] if key in _SAYS else ""
    return Claim(key, "HIOS", f"Fig. {figure}", what, published, read, rule, measure, command, because, unit=unit)


def _ranged(
    key: str, what: str, low: float, high: float, measure: Callable[[Run], Values], unit: str = "x"
) -> Claim:  # fmt: skip
    published = {"least": low, "most": high}
    return _printed(key, 8, what, published, Between(low, high), partial(extremes, measure), unit,
                    "the text: a range over the figure")  # fmt: skip


CLAIMS: Final[tuple[Claim, ...]] = (
    _printed("lp", 7, "HIOS-LP over one operator after the other, by GPUs", {"2": 1.4, "12": 3.8}, SAME_MODEL,
             partial(speedups, 7, "hios-lp")),
    _printed("lp-ios", 7, "HIOS-LP over IOS, by GPUs", {"2": 1.3, "12": 3.5}, SAME_MODEL,
             partial(over, 7, "ios")),
    _printed("mr", 7, "HIOS-MR over one operator after the other is at most 1.5, by GPUs", {"most": 1.5},
             Between(0.0, 1.5), partial(extremes, partial(speedups, 7, "hios-mr"))),
    _printed("ios", 7, "IOS over one operator after the other: as far as the formula goes on one GPU, 1 / (0.5 + 0.5 * "
             "0.8) = 1.11 (called exact; the released one cuts a graph into ten operators each and breaks about 131 "
             "dependencies of 400)", {"4": 1.108}, SAME_MODEL, partial(speedups, 7, "ios")),
    _ranged("lp", "HIOS-LP over one operator after the other: 2.01 to 2.12, by operators", 2.01, 2.12,
            partial(speedups, 8, "hios-lp")),
    _ranged("lp-ios", "HIOS-LP over IOS: 1.81 to 1.91, by operators", 1.81, 1.91, partial(over, 8, "ios")),
    _ranged("lp-mr", "HIOS-LP over HIOS-MR: 1.51 to 1.54, by operators", 1.51, 1.54, partial(over, 8, "hios-mr")),
    _ranged("lp-inter", "HIOS-LP over inter-LP: 1.05 to 1.08, by operators", 1.05, 1.08,
            partial(over, 8, "inter-lp")),
    _ranged("stages-lp", "Algorithm 2 shortens LP's makespans by 5.7 to 7.7 %, by operators", 5.7, 7.7,
            partial(stages_gain, 8, "lp"), "%"),
    _ranged("stages-mr", "Algorithm 2 shortens MR's makespans by 13.3 to 14.6 %, by operators", 13.3, 14.6,
            partial(stages_gain, 8, "mr"), "%"),
    _printed("lp", 9, "HIOS-LP over one operator after the other, by edges", {"400": 2.06, "600": 1.64}, SAME_MODEL,
             partial(speedups, 9, "hios-lp")),
    _printed("mr", 9, "HIOS-MR over one operator after the other, by edges", {"400": 1.35, "600": 1.19}, SAME_MODEL,
             partial(speedups, 9, "hios-mr")),
    _printed("baselines", 10, "makespans of one operator after the other and of IOS do not depend on the layers",
             {"sequential": 411.0, "ios": 371.0}, SAME_MODEL, baselines, unit="ms"),
    _printed("mr", 10, "makespans of HIOS-MR do not depend on the layers", {f"{x:g}": 305.0 for x in PLACES[10]},
             SAME_MODEL, recorded, "ms"),
    _printed("lp", 10, "makespans of HIOS-LP, by layers", {"6": 174.0, "22": 233.0}, SAME_MODEL,
             partial(latencies, 10, "hios-lp"), "ms"),
    _printed("lp", 11, "HIOS-LP over one operator after the other, by p (in sec. V-G these speedups are called "
             "latencies)", {"0.4": 2.23, "1.2": 1.78}, SAME_MODEL, partial(speedups, 11, "hios-lp")),
    _printed("mr", 11, "HIOS-MR over one operator after the other, by p", {"0.4": 1.52, "1.2": 1.10}, SAME_MODEL,
             partial(speedups, 11, "hios-mr")),
)  # fmt: skip
