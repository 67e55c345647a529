"""Figures for papers, drawn with matplotlib from plain numbers: one colour per scheduler everywhere."""

from simsched.show.plot.axes import heading
from simsched.show.plot.bars import bar_plot
from simsched.show.plot.boxes import box_plot
from simsched.show.plot.heat import heat_map
from simsched.show.plot.lines import line_plot
from simsched.show.plot.looks import HATCHES, lines_of, looks_of
from simsched.show.plot.scaling import PowerLaw, power_law, scaling_plot

__all__ = [
    "HATCHES",
    "PowerLaw",
    "bar_plot",
    "box_plot",
    "heading",
    "heat_map",
    "line_plot",
    "lines_of",
    "looks_of",
    "power_law",
    "scaling_plot",
]
