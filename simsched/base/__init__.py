"""What everything stands on: errors, units, files, limits, machine code."""
