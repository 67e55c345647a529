"""HIOS's claims: its worked examples, the released evaluator by hand, the study files, and the table of columns."""

from math import isfinite
from pathlib import Path

import pytest

import simsched as ss
import workloads
from simsched.experiments.study import Study
from validation.papers import hios, hios_released, hios_simulated
from validation.papers.claims import Run
from validation.papers.hios_numbers import DEFAULT, FIGURES, SCHEDULERS, SETTINGS, settings, spread, values
from validation.papers.hios_printed import PLACES, extremes
from validation.papers.hios_released import Evaluator, stage_time
from validation.papers.record import Outcome

CLAIMS = {claim.key: claim for claim in hios.CLAIMS}
QUICK = Run(quick=True, workers=1)
CHEAP = (
    "hios-fig1-small", "hios-fig1-large", "hios-fig2-range", "hios-fig9-correct", "hios-fig9-lp", "hios-fig9-mr",
    "hios-fig8-released", "hios-fig10-released-22", "hios-fig7-released-mappings", "hios-released-repaired",
)  # fmt: skip


def made(times, edges):
    """A graph of operators 0, 1, ... of given us and utilization 0.5, and edges "0-1" with transfers of 1 us."""
    ops = [ss.Operator(str(i), time=us, utilization=0.5) for i, us in enumerate(times)]
    return ss.OpGraph(ops, [ss.Edge(*edge.split("-"), transfer=1.0) for edge in edges.split()])


# Worked examples -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["hios-fig4", "hios-fig5", "hios-algorithm2-deadlock", "hios-fig1-formula"])
def test_published_examples_come_out(key):
    claim = CLAIMS[key]
    assert claim.verdict(claim.measure(QUICK)) == "reproduced"


def test_the_formula_never_gains_more_than_a_fifth():
    """Two of 4 us and 2 us at utilization 0.6: 0.5 * 6 + 0.5 * max(3.6, 4) = 5; of 4 us each: 4 + 0.5 * 4.8 = 6.4."""
    assert stage_time((4.0, 2.0), (0.6, 0.6)) == 5.0
    assert stage_time((4.0, 4.0), (0.6, 0.6)) == pytest.approx(6.4)


# The released evaluator ------------------------------------------------------------------------------


def test_an_operator_waits_for_the_device_of_its_producer():
    """0 and 1, 4 us each, on GPU 0; 2, of 2 us, on GPU 1 reads from 0. It starts at 8 + 1, not at 4 + 1."""
    evaluator = Evaluator(made([4.0, 4.0, 2.0], "0-2"), [0, 0, 1])
    assert evaluator.makespan() == 11.0
    assert evaluator.makespan(by_operator=True) == 8.0


def test_a_producer_of_a_higher_number_is_not_waited_for():
    """0 reads from 1, both of 4 us, on one GPU each: 0 waits for the transfer alone; by priority 1 is first."""
    evaluator = Evaluator(made([4.0, 4.0], "1-0"), [0, 1])
    assert evaluator.makespan() == evaluator.makespan(by_operator=True) == 5.0
    assert evaluator.makespan(by_priority=True) == evaluator.makespan(by_priority=True, by_operator=True) == 9.0


def test_stages_that_gain_nothing_are_accepted():
    """Two of 4 us on one GPU become a stage of 4 + 0.5 * 4 = 6. Two that depend on each other do not."""
    assert Evaluator(made([4.0, 4.0], ""), [0, 0]).with_stages() == 6.0
    assert Evaluator(made([4.0, 4.0], "0-1"), [0, 0]).with_stages() == 8.0


def test_transfers_between_stages_add_up():
    """0, 1 of 4 us on GPU 0, each read by 2, of 2 us, on GPU 1: 8 + 1 + 2 = 11; {0, 1} ends at 6, then 1 + 1 and 2."""
    assert Evaluator(made([4.0, 4.0, 2.0], "0-2 1-2"), [0, 0, 1]).with_stages() == 10.0


def test_data_between_stages_must_close_no_cycle():
    """0, 3 on GPU 0, 1, 2 on GPU 1, 0 -> 1 and 2 -> 3, all of 4 us: 0 at 0-4, 1 at 5-9, 2 at 9-13, 3 at 14-18.

    {0, 3} of 6 us takes the place of 0, with 2 not begun yet: 1-7, 1 at 8-12, 2 at 12-16. {1, 2} at 8-14 would be
    better still, but {0, 3} and {1, 2} read from each other.
    """
    graph = made([4.0, 4.0, 4.0, 4.0], "0-1 2-3")
    evaluator = Evaluator(graph, [0, 1, 1, 0])
    inputs = hios_released._inputs(hios_released._edges(graph), [0, 1, 1, 0])
    assert not hios_released._acyclic([0, 1], inputs)
    assert evaluator.makespan() == 18.0
    assert evaluator.with_stages() == 16.0


def test_the_released_mapping_is_evaluated_as_the_library_does():
    """With both repairs the evaluator is the list evaluation of the scheduler itself."""
    graph = hios_released.drawn(DEFAULT, 3)
    for scheduler in ("inter-lp", "inter-mr"):
        evaluator, plan = hios_released.mapped(graph, scheduler, 4)
        assert evaluator.makespan(by_priority=True, by_operator=True) == pytest.approx(plan.estimate, rel=1e-12)


# Claims -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", CHEAP)
def test_claims_have_values_of_their_own(key):
    claim = CLAIMS[key]
    ours = claim.measure(QUICK)
    assert set(claim.published) <= set(ours)
    assert all(isfinite(value) and value > 0 for name, value in ours.items() if "±" not in name)


def test_every_figure_is_claimed_and_every_key_is_one():
    assert len(CLAIMS) == len(hios.CLAIMS)
    for figure in (1, 2, *range(4, 15)):
        assert any(key.startswith(f"hios-fig{figure}") for key in CLAIMS), figure
    for claim in hios.CLAIMS:
        assert claim.published or claim.missing.startswith("source not available: ")


@pytest.mark.parametrize("figure", FIGURES)
def test_study_files_are_the_figures(figure):
    """Six schedulers on 30 graphs at each place; the default and whatever values were collected of are among them."""
    study = Study.from_file(Path(hios.__file__).with_name(f"hios_fig{figure}.toml"))
    column, default = FIGURES[figure]
    table, _, parameter = column.partition(".")
    swept = {"workload": study.workload, "cluster": study.cluster}[table][0][parameter]
    assert tuple(swept) == PLACES[figure]
    assert {default, *settings(figure)} <= set(swept)
    assert [choice.label for choice in study.choices] == ["sequential", "ios", *SCHEDULERS]
    assert len(study) == 6 * 30 * len(swept)
    assert study.figure[0]["y"] == "estimate_speedup"


def test_study_graphs_are_the_default():
    parameters = {key: value for key, value in DEFAULT.parameters.items() if key != "n_edges"}
    assert workloads.load("random:layered", **parameters, seed=1) == workloads.load(
        "random:layered", **DEFAULT.parameters, seed=1
    )


def test_collected_values_stand_under_names_of_claims():
    assert values(7, "correct")["hios-lp 12"] == 5.75
    assert values(11, "released")["inter-mr 0.8"] == 1.08
    assert extremes(lambda run: {"4": 3.0, "2": 2.0}, QUICK) == {"least": 2.0, "most": 3.0, "4": 3.0, "2": 2.0}
    assert spread([1.0]) == 0.0
    assert spread([1.0, 3.0]) == pytest.approx(2.0**0.5)


def test_estimates_are_speedups_of_one_by_one():
    """At each place of Fig. 9 one operator after the other is the unit, and IOS is as far as its formula goes."""
    for found in hios_simulated.points(9, True, 1).values():
        assert found["sequential"] == (1.0,)
        assert found["ios"][0] == pytest.approx(1.11, abs=0.03)
    assert hios_simulated.over(9, "hios-lp", QUICK) == dict.fromkeys(("400", "450", "500", "550", "600"), 1.0)


# The table --------------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_each_scheduler_and_setting():
    """Made of the published values themselves, without deviation."""
    outcomes = {
        key: Outcome({**claim.published, **{f"± {name}": 0.0 for name in claim.published}})
        for key, claim in CLAIMS.items()
        if claim.measure
    }
    lines = hios.tables(outcomes).splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| setting")]
    assert len(rows) == len(SETTINGS) * len(SCHEDULERS)
    assert "| 2 GPUs | hios-lp | 1.4 | 1.34 | 2.08 ± 0.00 | 2.08 | 1.34 ± 0.00 |" in rows
    assert "| 22 layers | inter-mr | - | 1.05 | 3.01 ± 0.00 | 3.01 | 1.05 ± 0.00 |" in rows


def test_there_is_no_table_before_the_claims_have_run():
    assert hios.tables({}) == ""
