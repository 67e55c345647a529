"""HIOS's claims: "HIOS: Hierarchical Inter-Operator Scheduler", IEEE CLUSTER 2023.

Its simulated figures, 7 to 11, have three columns here (`columns`): what was printed, what the released code reports,
and what the algorithms come to under a correct model, beside an independent reimplementation of them. The released
evaluator is rebuilt in `hios_released`: under it the same mappings come out as printed, so it is what makes the
difference.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from validation.markdown import table
from validation.papers import hios_networks as networks
from validation.papers.claims import Claim, Measures, claims_of
from validation.papers.hios_examples import deadlock, figure_4, figure_5
from validation.papers.hios_released import UNLIKE, released, released_mappings, repaired, stage_time
from validation.papers.hios_simulated import (
    FIGURES,
    SCHEDULERS,
    Setting,
    baselines,
    compared,
    extremes,
    latencies,
    one_gpu,
    over,
    speedups,
    stages_gain,
)
from validation.papers.record import DEVIATION, Outcome

MEASURES: Final[Measures] = {
    "hios-fig4": figure_4,
    "hios-fig5": figure_5,
    "hios-algorithm2-deadlock": deadlock,
    "hios-fig7-lp": speedups(7, "hios-lp"),
    "hios-fig7-lp-ios": over(7, "ios"),
    "hios-fig7-mr": extremes(speedups(7, "hios-mr")),
    "hios-fig7-ios": speedups(7, "ios"),
    "hios-fig8-lp": extremes(speedups(8, "hios-lp")),
    "hios-fig8-lp-ios": extremes(over(8, "ios")),
    "hios-fig8-lp-mr": extremes(over(8, "hios-mr")),
    "hios-fig8-lp-inter": extremes(over(8, "inter-lp")),
    "hios-fig8-stages-lp": extremes(stages_gain(8, "lp")),
    "hios-fig8-stages-mr": extremes(stages_gain(8, "mr")),
    **{f"hios-fig{number}-{kind}": speedups(number, f"hios-{kind}") for number in (9, 11) for kind in ("lp", "mr")},
    "hios-fig10-baselines": baselines,
    "hios-fig10-mr": latencies(10, "hios-mr"),
    "hios-fig10-lp": latencies(10, "hios-lp"),
    **{f"hios-fig{number}-correct": partial(compared, number) for number in FIGURES},
    "hios-fig7-one-gpu": one_gpu,
    "hios-fig7-lp-mr-correct": over(7, "hios-mr"),
    "hios-fig7-lp-ios-correct": over(7, "ios"),
    **{
        f"hios-fig{number}-released": partial(released, number, [x for x in figure.collected if x != UNLIKE])
        for number, figure in FIGURES.items()
    },
    "hios-fig10-released-22": partial(released, 10, [UNLIKE]),
    "hios-fig7-released-mappings": released_mappings,
    "hios-released-repaired": repaired,
    "hios-fig1-small": lambda _: networks.side_by_side((8, 16, 32, 64)),
    "hios-fig1-large": lambda _: networks.side_by_side((128, 256, 512, 1024, 252)),  # 252: blocks just fill whole waves
    "hios-fig1-formula": lambda _: {f"utilization {u:g}": stage_time((1, 1), (u, u)) / 2 for u in (0.6, 0.8, 1.0)},
    "hios-fig2-range": networks.transfer_ratios,
    "hios-fig12-nasnet-loss": networks.small_over_ios,
    "hios-fig12-nasnet-loss-sequential": partial(networks.nasnet, 331),
    "hios-fig12-nasnet-large": partial(networks.nasnet, 2048),
    "hios-fig12-inception": networks.inception,
    "hios-vi-e-receives": networks.asynchronous,
    "hios-vi-e-nasnet-stages": networks.stages_on_nasnet,
}

_PRINTED: Final[Mapping[tuple[int, str], Mapping[float, str]]] = {
    (7, "hios-lp"): {2: "1.4", 12: "3.8"},
    (7, "hios-mr"): dict.fromkeys((2, 8, 12), "at most 1.5"),
    (8, "hios-lp"): dict.fromkeys((100, 400), "2.01 to 2.12"),
    (9, "hios-lp"): {400: "2.06 (Fig. 9)", 600: "1.64"},
    (9, "hios-mr"): {400: "1.35 (Fig. 9)", 600: "1.19"},
    (10, "hios-lp"): {6: "411 / 174 ms", 22: "411 / 233 ms"},
    (10, "hios-mr"): dict.fromkeys((6, 10, 18, 22), "411 / 305 ms"),
    (11, "hios-lp"): {0.4: "2.23", 1.2: "1.78"},
    (11, "hios-mr"): {0.4: "1.52", 1.2: "1.10"},
}
"""What the paper prints, by figure and scheduler and place on its axis, as tables show it."""
_COLUMNS: Final = (
    "setting", "scheduler", "printed", "released code", "ours", "independent", "ours by the released evaluator"
)  # fmt: skip
_NOTE: Final = (
    "Speedups over one operator after the other, mean ± standard deviation of 30 random DAGs; IOS is at 1.11 in every "
    "row and column. *Independent* is a reimplementation of the printed algorithms under the same correct model. The "
    "printed values are those of an evaluator that has each operator wait until the GPUs of its producers have done "
    "all that was put there so far, in the order of numbers that are not topological. The last column is that "
    "evaluator, rebuilt, on the released mappings: it gives the released values again. What the same mappings come to "
    "if they are evaluated correctly is in the row of Fig. 7 on released mappings."
)


def columns(outcomes: Mapping[str, Outcome]) -> str:
    """Return a Markdown table of Fig. 7 to 11: printed, released, correct; empty if outcomes are not all there."""
    claims = {claim.key: claim for claim in claims_of(["hios"])}
    default = "default: 4 GPUs, 200 operators, 14 layers, 400 edges, p = 0.8"
    places = [(number, x) for number, figure in FIGURES.items() for x in figure.collected]
    rows = []
    for number, x in [(9, 400.0), *(place for place in places if FIGURES[place[0]].at(place[1]) != Setting())]:
        title = default if FIGURES[number].at(x) == Setting() else FIGURES[number].title.format(x)
        by_release = "released-22" if (number, x) == (10, UNLIKE) else "released"
        correct, rebuilt = claims[f"hios-fig{number}-correct"], claims[f"hios-fig{number}-{by_release}"]
        if not {correct.key, rebuilt.key} <= outcomes.keys():
            return ""
        for scheduler in SCHEDULERS:
            (theirs, ours), (reported, again) = (
                _cells(claim, outcomes[claim.key], f"{scheduler} {x:g}") for claim in (correct, rebuilt)
            )
            printed = _PRINTED.get((number, scheduler), {}).get(x, "-")
            rows.append((title, scheduler, printed, reported, ours, theirs, again))
    return "\n".join(["## HIOS, Fig. 7 to 11: printed, released, correct", "", *table(_COLUMNS, rows), "", _NOTE])


def _cells(claim: Claim, outcome: Outcome, name: str) -> tuple[str, str]:
    """Return a published value, and ours with its deviation."""
    ours = outcome.ours or {}
    return f"{claim.published[name]:.2f}", f"{ours[name]:.2f} ± {ours[DEVIATION + name]:.2f}"
