"""Colours of kinds of operators, and colours, lines, markers and hatches of schedulers."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from simsched.model import Ints, OpGraph

# Okabe and Ito's palette, distinct for the colour-blind and in grey; black is left to text.
PALETTE: Final = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
GREY: Final = "#999999"  # kinds behind the palette
# of schedulers: the same with grey for yellow, of which a line is not seen on white
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#737373")
_TINTS: Final = (0.0, 0.6, 0.25, 0.8)  # shares of white
# the shape of each scheduler: of lists, stages, baselines, captured graphs and searches; and, by their order, its
# colour: that which none of those before it has, as long as there is one
_SHAPES: Final = {
    "lios": 0, "hios-lp": 1, "heft": 0, "ios": 1, "nimble": 3, "greedy": 1, "sequential": 2, "search": 4, "etf": 0,
    "opara": 3, "inter-lp": 1, "peft": 0, "autograph": 4, "round-robin": 2, "hios-mr": 1, "inter-mr": 1, "lios-rand": 0,
    "lios-rand1": 0, "lios-rand2": 0,
}  # fmt: skip
_OTHERS: Final = 5
SHAPES: Final = 8
"""How many kinds of lines, markers and hatches there are."""


class Look(NamedTuple):
    """What a scheduler looks like: its colour, and which kind of line, marker and hatch it has."""

    colour: str
    shape: int


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each scheduler of a figure, or of anything else that is drawn.

    Parameters
    ----------
    names
        A name of `SCHEDULERS`, also with options behind a blank such as ``"hios-lp w=4"``, is of its kind: lists,
        stages, baselines, captured graphs or searches. All others are of one kind.

    Notes
    -----
    Kinds differ by shape. No colour is there twice in a figure of up to seven names, and no look in one of up to 56.
    Who comes first in the order of `_SHAPES`, then of the names, has its own colour if nobody has that, else the
    one that the fewest have. So a scheduler looks the same in most figures, and schedulers alike in any order.

    >>> looks_of(["sequential", "lios"])
    {'sequential': Look(colour='#737373', shape=2), 'lios': Look(colour='#0072B2', shape=0)}
    """
    given = list(dict.fromkeys(names))
    place = {name: i for i, name in enumerate(_SHAPES)}
    used: Counter[str] = Counter()
    found: dict[str, Look] = {}
    for name in sorted(given, key=lambda name: place.get(name, len(place))):
        stem = name.partition(" ")[0]
        kind, own = _SHAPES.get(stem, _OTHERS), place.get(stem, 0)
        colours = [COLOURS[(own + i) % len(COLOURS)] for i in range(len(COLOURS))]
        colours.sort(key=lambda colour: used[colour])  # stable: of those that the fewest have, its own first
        looks = [
            Look(colour, shape) for shape in (kind, *range(_OTHERS, SHAPES), *range(_OTHERS)) for colour in colours
        ]
        found[name] = next((look for look in looks if look not in found.values()), looks[0])
        used[found[name].colour] += 1
    return {name: found[name] for name in given}


def kind_colours(graph: OpGraph) -> tuple[Ints, list[str]]:
    """Return the colour of each operator by its kind, shape (n_ops,), and what each colour is called.

    Colours go to the kinds that the graph has most of; kinds after the seventh share one.
    """
    codes, labels = graph.labels("kind")
    counts = np.bincount(codes, minlength=len(labels))
    order = np.argsort(-counts, kind="stable")
    rank, n_kinds = np.argsort(order), np.count_nonzero(counts)
    names = [str(labels[i]) for i in order[: min(n_kinds, len(PALETTE))]]
    names += ["other"] if n_kinds > len(PALETTE) else []
    return np.minimum(rank, len(PALETTE))[codes], names


def paint(code: int) -> str:
    """Return the colour of a code of `kind_colours`."""
    return PALETTE[code] if code < len(PALETTE) else GREY


def tinted(code: int, tint: int) -> str:
    """Return a colour of the palette, which begins again after its end, in one of four tints."""
    white = _TINTS[tint % len(_TINTS)]
    return "#" + "".join(f"{round(c + (255 - c) * white):02X}" for c in bytes.fromhex(PALETTE[code % len(PALETTE)][1:]))


def luminance(colour: str) -> float:
    """Return how light ``#rrggbb`` is, from 0, black, to 1, white (the relative luminance of sRGB)."""
    channels = (channel / 255 for channel in bytes.fromhex(colour[1:]))
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def ink(background: str) -> str:
    """Return black or white, whichever has more contrast (WCAG 2) on a background.

    >>> ink("#F0E442"), ink("#0072B2")
    ('#000000', '#ffffff')
    """
    return "#000000" if (luminance(background) + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"
