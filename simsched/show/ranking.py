"""Pictures of a study's ranking: performance profiles, and mean ranks with critical differences."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from simsched.base.errors import StudyError
from simsched.base.text import printable
from simsched.show.chart import Look, looks_of
from simsched.show.paper import DASHES, legend_name, require_format, save_figure, style

if TYPE_CHECKING:
    from simsched.experiments.study.rank import Group, Ranking

_WIDTH: Final = 7.2  # inches
# inches: axes of a profile, a name beside ranks, the line of ranks with bars
_PROFILE = 2.6
_LINE = 0.17
_HEAD = 0.7
_BAR: Final = 0.22  # of the height of a name, between bars of sets without significant difference
_MANY: Final = 9  # ranks from which on every other one is written
_NAME: Final = 28  # characters of a name
_FARTHEST: Final = 0.99  # part of the ratios that a profile shows
_MOST: Final = 10.0  # times the best, unless that part reaches less far


def draw_ranking(ranking: "Ranking", path: str | os.PathLike[str] | None = None) -> Any:
    """Draw a profile and a diagram of critical differences for each group, side by side; return the figure.

    Raises
    ------
    StudyError
        If no block of any group has a result.
    FileError
        If the suffix is not known or the file cannot be written.
    """
    require_format(path)
    groups = [group for group in ranking.groups if len(group.ratios)]
    if not groups:
        raise StudyError(f"{ranking.name}: there is nothing to draw: no row has a {ranking.metric}")
    looks = looks_of(list(dict.fromkeys(row.scheduler for group in groups for row in group.rows)))
    heights = [_HEAD + _LINE * (len(group.rows) + 1) / 2 + _BAR * _LINE * len(group.cliques) for group in groups]
    with style("both") as new_figure:
        figure = new_figure((_WIDTH, sum(max(_PROFILE, height) for height in heights) + 0.3))
        ratios = [max(_PROFILE, height) for height in heights]
        axes = figure.subplots(len(groups), 2, squeeze=False, height_ratios=ratios)
        for (profile, ranks), group in zip(axes, groups, strict=True):
            _profile(profile, group, looks)
            _ranks(ranks, group)
            title = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in group.by.items())
            profile.set_title(_short(title, 2 * _NAME), loc="left")
            profile.set_xlabel(f"times the best {ranking.metric}")
        axes[0, 0].legend(fontsize=6, loc="lower right")
        save_figure(axes[0, 0], path)
    return figure


def _short(name: str, longest: int = _NAME) -> str:
    """Return a name on one line, cut if it is too long."""
    text = printable(name)
    if len(text) <= longest:
        return text
    return f"{text[: longest - 3]}..."


def steps_of(ratios: Any) -> tuple[list[float], list[float]]:
    """Return where a profile rises, in times the best, and to which part of the blocks: infinite ratios never count.

    >>> steps_of(np.array([1.0, 2.0, 1.0, np.inf]))
    ([1.0, 2.0], [0.5, 0.75])
    """
    places, counts = np.unique(ratios[np.isfinite(ratios)], return_counts=True)
    return places.tolist(), (np.cumsum(counts) / len(ratios)).tolist()


def _profile(ax: Any, group: "Group", looks: Mapping[str, Look]) -> None:
    finite = group.ratios[np.isfinite(group.ratios)]
    end = max(1.05, min(_MOST, float(np.quantile(finite, _FARTHEST))) * 1.02)
    for i, row in enumerate(group.rows):
        places, parts = steps_of(group.ratios[:, i])
        look = looks[row.scheduler]
        xs = [1.0, *places, max(end, *places, 1.0)]
        ys = [0.0, *parts, parts[-1] if parts else 0.0]
        ax.step(
            xs,
            ys,
            where="post",
            color=look.colour,
            linestyle=DASHES[look.shape],
            linewidth=1.2,
            label=legend_name(_short(row.scheduler)),
        )
    ax.set(xlim=(1.0, end), ylim=(0.0, 1.02), ylabel="part of the blocks")


def _ranks(ax: Any, group: "Group") -> None:
    """Draw mean ranks on a line, the better half named on the left, and bars that join equal ranks."""
    ax.set_axis_off()
    ranked = [(row.scheduler, row.mean_rank) for row in group.rows if row.mean_rank is not None]
    n = len(ranked)
    if group.critical_difference is None:
        ax.text(0.5, 0.5, "no complete block" if n == 0 else "one scheduler", ha="center", transform=ax.transAxes)
        return
    half = (n + 1) // 2
    below = 0.6 + _BAR * len(group.cliques)  # where names begin, in heights of a name below the line
    ax.set(xlim=(1 - 0.5 * n, n + 0.5 * n), ylim=(-below - half - 0.3, 2.6))
    ink: dict[str, Any] = {"color": "black", "linewidth": 0.8, "clip_on": False}
    ax.plot([1, n], [0, 0], **ink)
    for tick in range(1, n + 1):
        ax.plot([tick, tick], [0, 0.18], **ink)
        if n <= _MANY or tick % 2 == 1:
            ax.text(tick, 0.28, str(tick), ha="center", va="bottom", fontsize=6)
    for i, (name, value) in enumerate(ranked):
        is_left = i < half
        row = i if is_left else n - 1 - i
        y = -below - row - 0.4
        end = 0.8 if is_left else n + 0.2
        ax.plot([value, value, end], [0, y, y], **ink)
        text = f"{_short(name)}  {value:.2f}"
        ax.text(end + (-0.1 if is_left else 0.1), y, text, ha="right" if is_left else "left", va="center", fontsize=7)
    at = dict(ranked)
    for i, clique in enumerate(group.cliques):
        y = -0.3 - _BAR * i
        ax.plot([at[clique[0]] - 0.03, at[clique[-1]] + 0.03], [y, y], color="black", linewidth=2.2)
    width = min(group.critical_difference, n - 1.0)
    ax.plot([1, 1 + width], [1.7, 1.7], marker="|", **ink)
    caption = f"critical difference {group.critical_difference:.2f}"
    ax.text(1 + width / 2, 1.85, caption, ha="center", va="bottom", fontsize=6)
