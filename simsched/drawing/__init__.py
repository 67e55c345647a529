"""Pictures of graphs and schedules: a layered layout, SVG and DOT."""

from simsched.drawing.dot import to_dot
from simsched.drawing.layout import Layout, layout
from simsched.drawing.svg import to_svg

__all__ = ["Layout", "layout", "to_dot", "to_svg"]
