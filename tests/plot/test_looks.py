"""One look per scheduler everywhere, which can be told apart without colours."""

import pytest

from simsched.schedulers import SCHEDULERS
from simsched.show.figure import PALETTE
from simsched.show.plot import HATCHES, lines_of, looks_of
from simsched.show.plot.looks import luminance


def test_a_scheduler_looks_the_same_whoever_else_is_drawn():
    everyone = dict(zip(SCHEDULERS, looks_of(list(SCHEDULERS)), strict=True))
    for others in (["mine"], ["search", "lios"], ["hios-lp w=2", "b", "a"]):
        assert looks_of([*others, "heft"])[-1] == everyone["heft"]
    assert len(set(everyone.values())) == len(SCHEDULERS)
    assert len(set(looks_of([*SCHEDULERS, *(f"s{i}" for i in range(56 - len(SCHEDULERS)))]))) == 56


def test_neighbours_differ_without_colours():
    """Hatches of 8 in a row differ; kinds of lines with markers do of all schedulers and 13 more."""
    looks = looks_of(list(SCHEDULERS))
    assert all(len({hatch for _, hatch in looks[i : i + 8]}) == 8 for i in range(len(looks) - 8))
    lines = lines_of([*SCHEDULERS, *(f"s{i}" for i in range(32 - len(SCHEDULERS)))])
    assert len({(line, marker) for _, line, marker in lines}) == 32


def test_variants_have_the_colour_of_their_scheduler():
    """lios with its eight hatches, less those of the two others in its colour."""
    names = ["lios", *(f"lios streams={i}" for i in range(5))]
    looks = looks_of(names)
    assert {colour for colour, _ in looks} == {PALETTE[list(SCHEDULERS).index("lios") % len(PALETTE)]}
    assert len(set(looks)) == 6
    others = looks_of([name for name in SCHEDULERS if name != "lios"])
    assert not set(looks) & set(others)
    assert looks_of(["lios streams=0", "lios streams=1"])[0] == looks[0]
    assert len(set(looks_of([f"lios s={i}" for i in range(9)]))) <= len(HATCHES)
    assert looks_of(["lios w=1", "lios w=1"])[0] == looks_of(["lios w=1"])[0]


@pytest.mark.parametrize(("colour", "light"), [("#000000", 0.0), ("#FFFFFF", 1.0), ("#00FF00", 0.7152)])
def test_luminance(colour, light):
    assert luminance(colour) == pytest.approx(light)
