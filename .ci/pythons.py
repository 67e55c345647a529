"""Print the paths of the Pythons that are here and that ``pyproject.toml`` supports, the oldest first.

They are looked for by name, ``python3.13`` and so on, and in the folder of pyenv, whose own ``python3.13`` may refuse
to run. Alphas and betas do not count. Under ``CI=true`` it is an error if there is only one.
"""

from __future__ import annotations  # an older Python can say, too, that it is too old

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAST = 30  # minor version up to which it is looked
ASK = "import ensurepip, sys, venv; print('%d.%d %s' % (*sys.version_info[:2], sys.version_info[3]))"


def path_of(version: str) -> str | None:
    """Return the path of a Python of a version, such as 3.13, that can make environments; None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for path in (shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python{version}")))):
        if path is not None:
            answer = subprocess.run([path, "-c", ASK], capture_output=True, text=True, check=False)
            if answer.stdout.strip() == f"{version} final":
                return path
    return None


def main() -> str | None:
    """Print the two paths; return what is wrong."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)
    first = int(named[0].partition(".")[2])
    paths = {version: path_of(version) for version in (f"3.{minor}" for minor in range(first, LAST))}
    there = {version: path for version, path in paths.items() if path is not None}
    if not there:
        return f"error: Python {named[0]} or newer is needed"
    if len(there) == 1 and os.environ.get("CI") == "true":
        return "error: the oldest and the newest Python are tested, and only one is here: install another"
    for version in {named[0], named[-1]} - set(there):
        print(f"warning: Python {version}, which pyproject.toml names, is not here", file=sys.stderr)
    print(*there.values(), sep="\n")
    return None


if __name__ == "__main__":
    sys.exit(main())
