"""One colour per scheduler everywhere; hatches, markers and kinds of lines tell apart who shares one."""

from collections.abc import Sequence
from typing import Final

from simsched.schedulers import SCHEDULERS
from simsched.show.figure import PALETTE

Line = str | tuple[int, tuple[float, ...]]
"""A kind of line, as matplotlib takes it."""

# of bars and boxes: one more than there are colours, so that neighbours in the list differ in grey as well
HATCHES: Final = ("", "/////", "\\\\\\\\\\", "xxxxx", ".....", "-----", "|||||", "+++++")
_MARKERS: Final = "osD^v<>P"  # one for each hatch
_LINES: Final[tuple[Line, ...]] = ("solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))


def looks_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return colour and hatching of each scheduler.

    Parameters
    ----------
    names
        Schedulers, or anything else that is drawn. A name of `SCHEDULERS` followed by a blank and options, such as
        ``"hios-lp w=4"``, is a variant of that scheduler: it has the scheduler's colour.

    Notes
    -----
    A scheduler of `SCHEDULERS` has the look of its place there, whichever others are drawn; a variant has the
    hatch of its scheduler if that is not drawn as well, else the next in `HATCHES` that no other has in this colour.
    All others follow after `SCHEDULERS` in the order given; looks repeat after 56 of them.
    """
    place = {name: i for i, name in enumerate(SCHEDULERS)}
    strangers = [name for name in dict.fromkeys(names) if _scheduler_of(name) is None]
    place |= {name: len(SCHEDULERS) + i for i, name in enumerate(strangers)}
    looks = {name: _look(i) for name, i in place.items()}
    for name in dict.fromkeys(names):
        scheduler = _scheduler_of(name)
        if name in looks or scheduler is None:
            continue
        taken = [look for other, look in looks.items() if other != scheduler or other in names]
        colour, hatch = looks[scheduler]
        first = HATCHES.index(hatch)
        turned = [(colour, each) for each in (*HATCHES[first:], *HATCHES[:first])]
        looks[name] = next((look for look in turned if look not in taken), turned[0])
    return [looks[name] for name in names]


def lines_of(names: Sequence[str]) -> list[tuple[str, Line, str]]:
    """Return colour, kind of line and marker of each scheduler; 32 in a row can be told apart without colours."""
    found: list[tuple[str, Line, str]] = []
    for colour, hatch in looks_of(names):
        hatches = HATCHES.index(hatch)
        # the only place below 56 with this colour and this hatch
        at = ((len(PALETTE) + 1) * PALETTE.index(colour) - len(PALETTE) * hatches) % (len(PALETTE) * len(HATCHES))
        found.append((colour, _LINES[at // len(HATCHES) % len(_LINES)], _MARKERS[hatches]))
    return found


def luminance(colour: str) -> float:
    """Return how light ``#rrggbb`` is, from 0, black, to 1, white (the relative luminance of sRGB)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _look(place: int) -> tuple[str, str]:
    return PALETTE[place % len(PALETTE)], HATCHES[place % len(HATCHES)]


def _scheduler_of(name: str) -> str | None:
    """Return the scheduler that a name is of, itself or a variant; None of other names."""
    scheduler = name.partition(" ")[0]
    return scheduler if scheduler in SCHEDULERS else None
