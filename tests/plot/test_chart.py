"""Looks of schedulers: distinct within a figure, shapes by kind."""

from itertools import combinations

import pytest

from simsched.schedulers import SCHEDULERS
from simsched.show.chart import _SHAPES, COLOURS, SHAPES, ink, looks_of, luminance


def colour_blind(colour):
    """What someone without cones for green sees of a colour, as linear RGB (Vienot, Brettel, Mollon 1999)."""
    r, g, b = ((channel / 255) ** 2.2 for channel in bytes.fromhex(colour[1:]))
    red = 0.29275 * r + 0.70725 * g
    return red, red, -0.02234 * r + 0.02234 * g + b


def test_no_colour_is_there_twice_in_a_figure():
    """Of any seven schedulers; any four of the main ones; and of seven strangers, or variants of one."""
    main = ["sequential", "heft", "lios", "hios-lp", "ios", "nimble", "greedy"]
    for names in (
        *combinations(main, 4),
        list(SCHEDULERS)[:7],
        [f"s{i}" for i in range(7)],
        [f"lios streams={i}" for i in range(7)],
    ):
        assert len({look.colour for look in looks_of(names).values()}) == len(names)
    assert len(set(looks_of([*SCHEDULERS, *(f"s{i}" for i in range(56 - len(SCHEDULERS)))]).values())) == 56


def test_a_scheduler_keeps_its_look_in_any_order_of_a_figure():
    looks = looks_of(SCHEDULERS)
    assert looks_of(reversed(list(SCHEDULERS))) == looks
    assert looks_of(["lios", "mine"])["lios"] == looks_of(["heft", "lios"])["lios"] == looks_of(["lios"])["lios"]


def test_kinds_of_schedulers_differ_without_colours():
    """Lists, stages, baselines, captured graphs and searches have each a shape, all others one; 19 schedulers fit."""
    assert set(_SHAPES) == set(SCHEDULERS)
    looks = looks_of([*SCHEDULERS, "mine"])
    assert {name: looks[name].shape for name in _SHAPES} == _SHAPES
    assert max(_SHAPES.values()) < looks["mine"].shape < SHAPES
    assert looks_of(["hios-lp w=4"])["hios-lp w=4"] == looks["hios-lp"]


@pytest.mark.parametrize("seen", [lambda colour: tuple(bytes.fromhex(colour[1:])), colour_blind])
def test_colours_differ_for_all(seen):
    found = [seen(colour) for colour in COLOURS]
    scale = max(max(each) for each in found)
    for one, other in combinations(found, 2):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) > 0.06 * scale


@pytest.mark.parametrize("ground", ["#ffffff", "#1b1f26"])
def test_lines_are_seen_on_paper_and_in_the_dark(ground):
    """A contrast of 2 at least; marks and kinds of lines differ, too."""
    for colour in COLOURS:
        low, high = sorted((luminance(colour), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) > 2
        assert ink(colour) in ("#000000", "#ffffff")
