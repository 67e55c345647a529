"""Print a constraints file of pip: each package at the lowest version that ``pyproject.toml`` allows."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def lowest(requirement: str) -> str:
    """Return a requirement such as ``numpy>=1.26,<3; python_version > '3'`` with its lower bound alone, as ``==``."""
    named, _, marker = requirement.partition(";")
    bound = re.fullmatch(r"\s*([\w.-]+)\s*(?:\[[^]]*\])?\s*>=\s*([\w.]+)\s*(?:,.*)?", named)
    if bound is None:
        raise SystemExit(f"pyproject.toml: {requirement!r} has no lower bound: write NAME>=VERSION")
    return f"{bound[1]}=={bound[2]}" + (f" ;{marker}" if marker else "")


def main() -> None:
    """Print the constraints of the packages that users and tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    print("\n".join(dict.fromkeys(map(lowest, requirements))))


if __name__ == "__main__":
    main()
