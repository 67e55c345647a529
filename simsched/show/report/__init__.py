"""Results as one HTML file that needs nothing else: tables that sort, charts that zoom, in light, dark and print."""

from simsched.show.report.sections import Block, Column, Figure, Gantt, Pairs, Section, Table, Tabs, Text
from simsched.show.report.write import write_report

__all__ = ["Block", "Column", "Figure", "Gantt", "Pairs", "Section", "Table", "Tabs", "Text", "write_report"]
