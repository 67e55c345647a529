"""The tornado chart of a sensitivity: the makespan between the low and the high of each parameter."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from simsched.base.errors import WhatIfError
from simsched.base.units import time_unit
from simsched.show.figure import PALETTE, new_figure, require_format, style
from simsched.show.plot.axes import TICK, Labels, broken, finish, plain_axes
from simsched.show.plot.scales import number, scale_axis

if TYPE_CHECKING:
    from simsched.experiments.whatif.sensitivity import Elasticity, Sensitivity

_LOW, _HIGH = (PALETTE[0], "/////"), (PALETTE[5], "")  # colours and hatches
_WIDTH, _ROW, _FRAME = 5.6, 0.24, 0.75  # inches of the figure, of a bar, and of what is around them
_BAR: Final = 0.72  # part of the distance of bars
_SHOWN: Final = 15  # bars
_NAME: Final = 44  # characters of a name per line


def tornado(found: "Sensitivity", path: str | os.PathLike[str] | None = None, *, ax: Any = None) -> Any:
    """Draw the rows that move the makespan most, from the top to the bottom; see `Sensitivity`.

    Raises
    ------
    WhatIfError
        If none does.
    FileError
        If the suffix is not known or the file cannot be written.
    """
    from matplotlib.patches import Patch

    require_format(path)
    rows = found.moving()[:_SHOWN]
    if not rows:
        raise WhatIfError("there is nothing to draw: no parameter moves the makespan")
    longest = max(max(row.low_us, row.high_us) for row in rows)
    scale, unit = time_unit(longest)
    base = found.base_us / scale
    with style():
        own = ax is None
        if ax is None:
            ax = new_figure(_WIDTH, _FRAME + _ROW * len(rows)).add_subplot()
        plain_axes(ax, grid="x")
        for y, row in enumerate(rows):
            for us, (colour, hatch) in ((row.low_us, _LOW), (row.high_us, _HIGH)):
                ax.barh(
                    y, us / scale - base, _BAR, left=base, color=colour, hatch=hatch, edgecolor="black", linewidth=0.4
                )
        ax.axvline(base, color="black", linewidth=0.8)
        ax.set_yticks(range(len(rows)), [broken(row.parameter, _NAME) for row in rows], fontsize=TICK)
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.margins(x=0.06)
        scale_axis(ax.xaxis, False)
        handles = [
            Patch(
                facecolor=colour, hatch=hatch, edgecolor="black", linewidth=0.4, label=f"parameter at {_factor(part)}"
            )
            for part, (colour, hatch) in zip(_swing(rows), (_LOW, _HIGH), strict=True)
        ]
        title = f"{found.graph} on {found.cluster}: makespan {base:.4g} {unit}"
        return finish(ax, own, Labels(title, f"makespan ({unit})"), path, handles=handles)


def _swing(rows: "Sequence[Elasticity]") -> tuple[float, float]:
    """Return the factors that most rows were moved by."""
    pairs = [(row.low, row.high) for row in rows]
    return max(pairs, key=pairs.count)


def _factor(part: float) -> str:
    return f"{number(100 * part)} %"
