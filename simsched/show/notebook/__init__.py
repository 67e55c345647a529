"""What notebooks show of graphs, schedules, traces and tables: HTML that takes the colours of its page."""

from simsched.show.notebook.pages import html

__all__ = ["html"]
