"""The files that are compiled into the engine."""

from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
SOURCES: Final = (
    *sorted(_HERE.glob("*.py")),
    *(_HERE.parent / name for name in ("contention.py", "gpu.py")),
    *(_HERE.parent.parent / name for name in ("machine_columns.py", "program.py", "units.py", "trace/trace.py")),
)
"""A change of any of them makes new machine code."""
