"""PyTorch models in files: programs that `torch.export.save` wrote, and functions of Python files that make a model."""

import importlib.util
import os
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

from simsched.base.errors import FormatError, MissingDependencyError, SimschedError
from simsched.base.io import read_bytes
from simsched.model.graph import OpGraph

_CONTENTS = (
    "an OpGraph, a torch.export.ExportedProgram, a pair (module, example_inputs), or a module with example_inputs"
)


def read_exported_file(
    path: str | os.PathLike[str], *, trust: bool = False, granularity: str = "operator", dtype: str | None = None
) -> OpGraph:
    """Return the graph of a file that `torch.export.save` wrote, named as the file is without its suffix.

    Parameters
    ----------
    path
        The file.
    trust
        Whether its origin is trusted: PyTorch unpickles parts of it, which can run code of whoever wrote it.
    granularity
        As in `workloads.formats.torch.fx.from_exported`.
    dtype
        There is no choice: the program has its own number formats.

    Raises
    ------
    FormatError
        If the file is not trusted, is no such program, or another number format is asked for.
    FileError
        If the file cannot be read.
    MissingDependencyError
        If PyTorch is not installed.
    """
    source = os.fspath(path)
    content = read_bytes(path)
    if not trust:
        raise FormatError(
            f"{source}: loading an exported program can run code of whoever wrote it; add --trust (in Python and specs "
            "trust=true) if you trust the file"
        )
    _refuse_format(source, dtype)
    torch = _torch()
    try:
        program = torch.export.load(BytesIO(content))
    except Exception as error:  # pickle, zip and PyTorch raise many kinds
        raise FormatError(f"{source}: PyTorch cannot load it: {_one_line(error)}") from error
    from workloads.formats.torch.fx import from_exported

    return from_exported(program, granularity=granularity, name=Path(source).stem)


def read_python(path: str | os.PathLike[str], *, granularity: str = "operator", dtype: str | None = None) -> OpGraph:
    """Return the graph of what a function, or a name, of a Python file holds; running the file runs its code.

    Parameters
    ----------
    path
        File and name, such as ``"my_model.py:make"``. A function is called without arguments. It returns, or the name
        is, a graph, an exported program, a pair of a module and its example inputs, or a module that has them as an
        attribute `example_inputs`.
    granularity
        As in `workloads.formats.torch.fx.from_module`.
    dtype
        There is no choice: the model has its own number formats.

    Raises
    ------
    FormatError
        If the file fails, has no such name, what it holds is nothing of the kind, or another number format is asked
        for.
    FileError
        If the file cannot be read.
    """
    source = os.fspath(path)
    _refuse_format(source, dtype)
    file, colon, name = source.rpartition(":")
    made = _value(source, Path(file if colon else source), name)
    if isinstance(made, OpGraph):
        return made
    from workloads.formats.torch.fx import from_exported, from_module

    if type(made).__name__ == "ExportedProgram":
        return from_exported(made, granularity=granularity, name=name)
    module, inputs = (
        made if isinstance(made, tuple) and len(made) == 2 else (made, getattr(made, "example_inputs", None))
    )
    if inputs is None or not callable(getattr(module, "forward", None)):
        raise FormatError(f"{source}: it holds a {type(made).__name__}; give {_CONTENTS}")
    return from_module(module, inputs if isinstance(inputs, tuple) else (inputs,), granularity=granularity)


def _value(source: str, file: Path, name: str) -> Any:
    """Return what a name of a Python file holds, or what a function of that name returns."""
    read_bytes(file)  # what cannot be read, or is no file, is said as of any other format
    spec = importlib.util.spec_from_file_location(f"_simsched_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles look their module up
    sys.path.insert(0, str(file.resolve().parent))  # what stands beside it can be imported
    try:
        spec.loader.exec_module(module)
        held: Any = getattr(module, name, None)
        is_made = callable(held) and not callable(getattr(held, "forward", None))
        value = held() if is_made and not isinstance(held, OpGraph) else held
    except SimschedError:
        raise
    except Exception as error:  # the file is the user's: it may raise anything
        raise FormatError(f"{source}: {_one_line(error)}") from error
    finally:
        sys.path.remove(str(file.resolve().parent))
    if value is None:
        raise FormatError(f"{source}: {file} has no {name!r}, or it returns nothing; give {_CONTENTS}")
    return value


def _refuse_format(source: str, dtype: str | None) -> None:
    if dtype is not None:
        raise FormatError(
            f"{source}: a PyTorch model has its own number formats; convert it instead, by model.half() say"
        )


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingDependencyError("reading .pt2 files needs PyTorch: pip install 'simsched[torch]'") from None
    return torch
