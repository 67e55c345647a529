"""Pictures of graphs and schedules: a layered layout, SVG and DOT."""

from simsched.show.drawing.dot import to_dot
from simsched.show.drawing.layout import Layout, layout
from simsched.show.drawing.svg import to_svg

__all__ = ["Layout", "layout", "to_dot", "to_svg"]
