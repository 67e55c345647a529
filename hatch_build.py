"""Build hook: with SIMSCHED_SHIP_CODE=1 a wheel carries optimised machine code, which nobody then has to compile."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    """Put the object code of all pieces into the wheel, for the oldest x86-64 and aarch64 under Linux."""

    def dependencies(self) -> list[str]:
        """Return what compiling needs; nothing where nothing is compiled."""
        return self.metadata.core.dependencies if _ships() else []

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Make the code and name it to the builder."""
        if _ships():
            sys.path.insert(0, self.root)
            from simsched.base.jit.pieces import ship

            for path in ship(Path(tempfile.mkdtemp()), Path(self.root)):
                build_data["force_include"][str(path)] = f"simsched/base/jit/objects/{path.name}"


def _ships() -> bool:
    return os.environ.get("SIMSCHED_SHIP_CODE") == "1"
