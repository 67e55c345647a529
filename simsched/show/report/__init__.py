"""Results as one HTML file that needs nothing else: tables that sort, charts that zoom, in light, dark and print."""

from simsched.show.report.page import write_report

__all__ = ["write_report"]
