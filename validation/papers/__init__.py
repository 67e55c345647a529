"""What the papers claim, and what comes out here: `python -m validation.papers`."""
