"""What everything stands on: errors, units, files, the codec of types, machine code."""
