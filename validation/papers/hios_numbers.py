"""HIOS's simulated study, Fig. 7 to 11: its settings, and what was printed and collected about each.

Values are mean speedups over one operator after the other on one GPU, unless said otherwise. `released` is what the
released code reports on graphs of its own generator, `correct` what an independent reimplementation of the printed
algorithms gets on the same graphs with finish times of operators and in-order stages. Both are of 30 graphs at the
default, of 22 or 23 on other numbers of GPUs, of 30 and 6 with 100 and 400 operators, and of 8 elsewhere; the standard
error of a mean of 8 is up to 3 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any, Final

SCHEDULERS: Final = ("inter-lp", "hios-lp", "inter-mr", "hios-mr")
"""In the order of the values below."""
DEFAULTS: Final[Mapping[str, Any]] = {"n_ops": 200, "n_layers": 14, "n_edges": 400, "comm_ratio": 0.8}
N_GPUS: Final = 4

Row = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Setting:
    """A point of one of the figures.

    Parameters
    ----------
    figure, x
        Which, and where on its axis; 0 and 0 are the default, which is in all of them.
    name
        For tables.
    released, correct
        Speedups of `SCHEDULERS`, see above.
    mapping
        The same of the released mappings if they are evaluated correctly.
    printed
        What the paper says about a scheduler, as text for tables.
    changed
        Parameters of the workload that differ from `DEFAULTS`.
    gpus
        How many.
    """

    figure: int
    x: float
    name: str
    released: Row
    correct: Row
    mapping: Row
    printed: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, Any] = field(default_factory=dict)
    gpus: int = N_GPUS

    @property
    def parameters(self) -> dict[str, Any]:
        """Of the workload."""
        return {**DEFAULTS, **self.changed}


_MR_UP_TO: Final = {"hios-mr": "at most 1.5"}
_SIZES: Final = {"hios-lp": "2.01 to 2.12"}

DEFAULT: Final = Setting(
    0, 0, "default: 4 GPUs, 200 operators, 14 layers, 400 edges, p = 0.8",
    (1.82, 1.97, 1.08, 1.27), (3.66, 3.79, 3.34, 3.53), (2.92, 3.13, 3.23, 3.43),
    {"hios-lp": "2.06 (Fig. 9)", "hios-mr": "1.35 (Fig. 9)"},
)  # fmt: skip
SETTINGS: Final = (
    DEFAULT,
    Setting(7, 2, "2 GPUs", (1.22, 1.34, 0.89, 0.99), (1.95, 2.08, 1.96, 2.10), (1.79, 1.95, 1.95, 2.09),
            {"hios-lp": "1.4", **_MR_UP_TO}, gpus=2),
    Setting(7, 8, "8 GPUs", (2.93, 3.04, 1.21, 1.40), (5.54, 5.62, 3.64, 3.82), (4.30, 4.53, 3.57, 3.76),
            _MR_UP_TO, gpus=8),
    Setting(7, 12, "12 GPUs", (3.55, 3.63, 1.21, 1.40), (5.67, 5.75, 3.64, 3.82), (4.93, 5.13, 3.57, 3.76),
            {"hios-lp": "3.8", **_MR_UP_TO}, gpus=12),
    Setting(8, 100, "100 operators", (1.73, 1.82, 1.10, 1.27), (3.01, 3.08, 2.74, 2.79), (2.43, 2.56, 2.54, 2.62),
            _SIZES, {"n_ops": 100, "n_edges": 200}),
    Setting(8, 400, "400 operators", (1.90, 2.03, 1.11, 1.30), (3.87, 4.01, 3.46, 3.73), (3.28, 3.52, 3.48, 3.75),
            _SIZES, {"n_ops": 400, "n_edges": 800}),
    Setting(9, 500, "500 edges", (1.61, 1.73, 1.02, 1.17), (3.66, 3.77, 3.35, 3.52), (2.87, 3.08, 3.22, 3.41),
            {}, {"n_edges": 500}),
    Setting(9, 600, "600 edges", (1.42, 1.55, 0.96, 1.11), (3.58, 3.70, 3.34, 3.50), (2.80, 3.01, 3.21, 3.40),
            {"hios-lp": "1.64", "hios-mr": "1.19"}, {"n_edges": 600}),
    Setting(10, 6, "6 layers", (2.32, 2.45, 1.17, 1.35), (3.76, 3.90, 3.53, 3.79), (3.22, 3.47, 3.43, 3.70),
            {"hios-lp": "411 / 174 ms", "hios-mr": "411 / 305 ms"}, {"n_layers": 6}),
    Setting(10, 10, "10 layers", (1.92, 2.04, 1.14, 1.31), (3.77, 3.91, 3.50, 3.73), (3.15, 3.42, 3.41, 3.65),
            {"hios-mr": "411 / 305 ms"}, {"n_layers": 10}),
    Setting(10, 18, "18 layers", (1.77, 1.91, 1.07, 1.25), (3.51, 3.61, 3.18, 3.33), (2.69, 2.87, 3.05, 3.19),
            {"hios-mr": "411 / 305 ms"}, {"n_layers": 18}),
    Setting(10, 22, "22 layers", (1.77, 1.87, 1.05, 1.21), (3.31, 3.42, 3.01, 3.11), (2.65, 2.82, 2.88, 2.98),
            {"hios-lp": "411 / 233 ms", "hios-mr": "411 / 305 ms"}, {"n_layers": 22}),
    Setting(11, 0.4, "p = 0.4", (2.09, 2.22, 1.32, 1.51), (3.78, 3.90, 3.43, 3.66), (2.99, 3.23, 3.37, 3.59),
            {"hios-lp": "2.23", "hios-mr": "1.52"}, {"comm_ratio": 0.4}),
    Setting(11, 0.6, "p = 0.6", (1.94, 2.06, 1.18, 1.37), (3.71, 3.83, 3.38, 3.57), (2.95, 3.18, 3.34, 3.54),
            {}, {"comm_ratio": 0.6}),
    Setting(11, 1.0, "p = 1.0", (1.71, 1.82, 1.00, 1.16), (3.55, 3.68, 3.27, 3.43), (2.95, 3.14, 3.22, 3.41),
            {}, {"comm_ratio": 1.0}),
    Setting(11, 1.2, "p = 1.2", (1.66, 1.77, 0.94, 1.10), (3.52, 3.63, 3.19, 3.35), (2.83, 3.02, 3.11, 3.28),
            {"hios-lp": "1.78", "hios-mr": "1.10"}, {"comm_ratio": 1.2}),
)  # fmt: skip

FIGURES: Final[Mapping[int, tuple[str, float]]] = {
    7: ("cluster.gpus", 4),
    8: ("workload.n_ops", 200),
    9: ("workload.n_edges", 400),
    10: ("workload.n_layers", 14),
    11: ("workload.comm_ratio", 0.8),
}
"""Of each figure the column of its axis, and where on it the default is."""


def settings(figure: int) -> dict[float, Setting]:
    """Return the settings of a figure of which values were collected, by their place on its axis."""
    _, default = FIGURES[figure]
    found = {setting.x: setting for setting in SETTINGS if setting.figure == figure}
    return dict(sorted({**found, default: DEFAULT}.items()))


def values(figure: int, kind: str) -> dict[str, float]:
    """Return the collected speedups of a figure as a claim has them; `kind` is "released" or "correct"."""
    return {
        point_name(scheduler, x): value
        for x, setting in settings(figure).items()
        for scheduler, value in zip(SCHEDULERS, getattr(setting, kind), strict=True)
    }


def point_name(scheduler: str, x: float) -> str:
    """Return what claims call a scheduler at a place on the axis."""
    return f"{scheduler} {x:g}"


def spread(samples: Sequence[float]) -> float:
    """Return the standard deviation of samples; 0 of a single one, as in a quick run."""
    return stdev(samples) if len(samples) > 1 else 0.0
