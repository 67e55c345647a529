"""Results as one HTML file that needs nothing else: tables that sort, charts that zoom, in light, dark and print."""

from simsched.show.report.page import write_report
from simsched.show.report.sections import Block, Column, Figure, Gantt, Pairs, Section, Table, Tabs, Text

__all__ = ["Block", "Column", "Figure", "Gantt", "Pairs", "Section", "Table", "Tabs", "Text", "write_report"]
