"""The code of schedulers outside this library: a digest of its source, and of the modules nearby that it imports."""

import ast
import sys
import sysconfig
from collections.abc import Iterator
from hashlib import sha256
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final

from simsched.base.errors import StudyError
from simsched.base.io import read_bytes
from simsched.schedulers import resolve

_OURS: Final = "simsched"  # the version identifies its code
_LENGTH: Final = 16  # hex digits of a digest
_loaded: dict[str, tuple[ModuleSpec | None, str]] = {}  # the digest of a scheduler's code when it was first asked for


def code_of(scheduler: str) -> str | None:
    """Return a digest of the source of a scheduler's module and of the modules that it imports from nearby.

    Parameters
    ----------
    scheduler
        A name in `SCHEDULERS`, or ``package.module:function``.

    Returns
    -------
    str or None
        16 hex digits. None for a scheduler of this library, which the version identifies, and for a module without a
        file.

    Raises
    ------
    SchedulerError
        If the scheduler cannot be imported.
    FileError
        If a file cannot be read.

    Notes
    -----
    "Nearby" is the folder that holds the module, or the package that it is part of; for an installed module, its
    package alone. Imports are read from the source, also inside functions, and followed. Imports by a computed name and
    data files are not seen. The module's place on the disk does not matter.
    """
    module, colon, _ = scheduler.partition(":")
    if not colon or module.partition(".")[0] == _OURS:
        return None
    resolve(scheduler)
    file = getattr(sys.modules[module], "__file__", None)
    if file is None:
        return None
    digest = sha256()
    for name, path in sorted(_sources(module, Path(file)).items()):
        text = read_bytes(path)
        digest.update(f"{name}:{len(text)}:".encode())
        digest.update(text)
    return digest.hexdigest()[:_LENGTH]


def require_loaded(scheduler: str, code: str) -> None:
    """Refuse a scheduler whose source has changed since this process first ran it: the old code would run.

    Raises
    ------
    StudyError
        If it has.
    """
    spec = sys.modules[scheduler.partition(":")[0]].__spec__  # another one after a reload
    loaded, first = _loaded.setdefault(scheduler, (spec, code))
    if loaded is not spec:
        _loaded[scheduler] = spec, code
    elif first != code:
        raise StudyError(
            f"the code of scheduler {scheduler!r} was edited after this process had imported it; start Python again, "
            'or pass executor="processes"'
        )


def _sources(module: str, file: Path) -> dict[str, Path]:
    """Return the files of a module, and of the modules nearby that it imports, by the names of the modules."""
    is_package = file.stem == "__init__"
    root = file.resolve().parents[module.count(".") + is_package]
    installed = {Path(path).resolve() for path in sysconfig.get_paths().values()}
    top = module.partition(".")[0]
    files: dict[str, Path] = {}
    waiting = [(module, file)]
    while waiting:
        name, path = waiting.pop()
        if name in files:
            continue
        files[name] = path
        if path.suffix != ".py":
            continue
        for alternatives in _imports(name, path):
            near = [name for name in alternatives if _is_near(name, top if root in installed else None)]
            candidates = ((name, _file_of(name, root)) for name in near)
            waiting += [(name, source) for name, source in candidates if source is not None][:1]
    return files


def _is_near(module: str, package: str | None) -> bool:
    """Return whether a module may be nearby: one of the package if that is given, none of this library."""
    first = module.partition(".")[0]
    return first not in ("", _OURS) and package in (None, first)


def _file_of(module: str, root: Path) -> Path | None:
    """Return the file of a module in a folder, None if it has none there."""
    place = root.joinpath(*module.split("."))
    candidates = (place.with_name(f"{place.name}.py"), place / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def _imports(module: str, file: Path) -> Iterator[list[str]]:
    """Yield a module's imports, from its source, as tuples of names: the first that is a module counts."""
    if file.stem == "__init__":
        package = module
    else:
        package = module.rpartition(".")[0]
    try:
        tree = ast.parse(read_bytes(file))
    except (SyntaxError, ValueError):  # in a module that is imported inside of `try`
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ([alias.name] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            if node.level:
                above = parents[: len(parents) - node.level + 1]
            else:
                above = []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ([f"{base}.{alias.name}", base] for alias in node.names)
