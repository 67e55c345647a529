"""Object code of all pieces for a release: a wheel that carries it compiles nothing where it runs."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from simsched.base.jit.native import to_object
from simsched.base.jit.pieces import Piece
from simsched.base.jit.store import pack

MACHINES: Final = {
    "linux-x86_64": "x86_64-unknown-linux-gnu",
    "linux-aarch64": "aarch64-unknown-linux-gnu",
}
"""Platform and machine in the name of a file, and the LLVM triple that it is made for."""


def all_pieces(root: Path) -> Iterator[Piece[Any]]:
    """Yield all pieces of the packages in a folder; their modules are imported."""
    for package in ("simsched", "hwbackend"):
        for path in sorted((root / package).rglob("*.py")):
            if "\n@piece(" in path.read_text(encoding="utf-8"):
                module = import_module(".".join(path.relative_to(root).with_suffix("").parts))
                pieces = (each for each in vars(module).values() if isinstance(each, Piece))
                yield from (each for each in pieces if each.__module__ == module.__name__)


def ship(folder: Path, root: Path) -> Iterator[Path]:
    """Write the optimised code of all pieces for all `MACHINES`; yield the files."""
    for each in all_pieces(root):
        assembly = each.assembly()
        for machine, triple in MACHINES.items():
            path = folder / each.shipped_name(machine)
            path.write_bytes(pack(to_object(assembly, "O3", triple)))
            yield path
