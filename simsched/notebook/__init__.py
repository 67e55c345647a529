"""What notebooks show of graphs, schedules, traces and tables: HTML that takes the colours of its page."""

from simsched.notebook.pages import html

__all__ = ["html"]
