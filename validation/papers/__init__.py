"""Claims of the papers, and their values here: `python -m validation.papers`."""
