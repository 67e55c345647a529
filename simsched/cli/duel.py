"""`simsched duel`: graphs on which one scheduler loses to another."""

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any

import simsched as ss
from simsched.base.errors import GraphError, SchedulerError, WhatIfError
from simsched.base.io import require_writable
from simsched.base.limits import MOST
from simsched.cli import options as opt
from simsched.cli import printing as out
from simsched.cli.options import IncompleteError, Text, argument, file_option, option

_SECONDS = 60.0
_MOST_OPERATORS = 200  # a duel is read by people
_LEAST_LAYERS = 3
_LARGEST_SIZE = 9
_SIZES = {
    "wavefront": ("rows", "columns"),
    "cholesky": ("tiles",),
    "lu": ("tiles",),
    "fft": ("points",),
    "inception-like": ("n_blocks",),
    "transformer-like": ("n_layers",),
}  # of families without a number of operators
Side = Annotated[Text, argument("B", "The scheduler that wins. Left out, A is a file that is replayed.")]


def duel(
    first: Annotated[str, argument("A|FILE", "The scheduler that loses, or a file with a duel.")],
    target: opt.Target,
    second: Side = None,
    family: Annotated[
        str, option("Random family to start from, with parameters: layered or cholesky,tiles=3.", metavar="NAME")
    ] = "layered",
    operators: Annotated[
        int, option("Operators of the graph, or as near to it as the family comes.", min=1, max=_MOST_OPERATORS)
    ] = 8,
    seconds: Annotated[
        float | None,
        option(f"End after so long.  [default: {_SECONDS:g} unless --evaluations is given]", min=0, max=1e6),
    ] = None,
    evaluations: Annotated[
        int | None, option("Graphs to try: with --seed they give the same duel again.", min=1, max=MOST["samples"])
    ] = None,
    seed: Annotated[int, option("Seed of the search.", min=0)] = 0,
    both: Annotated[
        bool, option("Then search where B loses to A, too; its file ends in -reverse.json.", "--both")
    ] = False,
    as_json: opt.Json = False,
    output: Annotated[Text, file_option("Write it to a JSON file.", "--output", "-o")] = None,
) -> None:
    """Search a small graph on which A takes as many times as long as B as possible, and say why; or replay one.

    The file has the graph, the cluster and both schedules: `simsched duel
    FILE` simulates them again, `compare FILE` and `report FILE` read it. A
    replay that gives another factor ends with 1.
    """
    if second is None:
        _replay(first, as_json)
        return
    if seconds is None and evaluations is None:
        seconds = _SECONDS
    if output is None:
        backwards = None
    else:
        backwards = str(Path(output).with_suffix("")) + "-reverse.json"
    if both and backwards is not None:
        require_writable(backwards)
    start = _starts(family, operators)
    cluster = target.bare()
    sides = [(first, second, output), *([(second, first, backwards)] if both else [])]
    duels: list[tuple[ss.Duel, str | None]] = []
    for loser, winner, path in sides:
        with out.progress(1) as tell:
            tell(f"{loser} against {winner}")
            shown = partial(_note_progress, tell, f"{loser} against {winner}")
            one = ss.duel(
                start,
                cluster,
                opt.read_scheduler(loser),
                opt.read_scheduler(winner),
                evaluations=evaluations,
                seconds=seconds,
                rng=seed,
                name=family,
                progress=shown,
            )
        duels.append((one, path))
    files: list[out.File] = [(f"duel of {one.factor:.3f}", path, one.save) for one, path in duels]
    shown_ = [part for one, _ in duels for part in (one.table, "")][:-1]
    out.tell(lambda: {"duels": [one.to_dict() for one, _ in duels]}, shown_, files, as_json=as_json)


def _note_progress(tell: Callable[..., None], name: str, n: int, factor: float) -> None:
    tell(name, f"{n} graphs, factor {factor:.3f}")


def _starts(family: str, operators: int) -> Callable[[int], "ss.OpGraph"]:
    """Return a function that makes a graph of a family from a seed."""
    from workloads import from_spec
    from workloads.registry import WORKLOADS

    name = family.partition(",")[0].strip()
    if f"random:{name}" not in WORKLOADS:
        families = ", ".join(name.removeprefix("random:") for name in WORKLOADS if name.startswith("random:"))
        raise WhatIfError(f"--family {family}: unknown family {name!r}; known are: {families}")
    spec = f"random:{family}"
    sizes: dict[str, Any] = {"n_ops": operators}
    if name == "layered":
        sizes["n_layers"] = max(_LEAST_LAYERS, operators // 2)
    if name in _SIZES:
        tried = {size: _n_operators(spec, _sizes(name, size)) for size in range(1, _LARGEST_SIZE)}
        nearest = min(tried, key=lambda size: abs(tried[size] - operators))
        sizes = _sizes(name, nearest)

    def start(seed: int) -> "ss.OpGraph":
        graph = from_spec(spec, **sizes, seed=seed)
        if len(graph) > _MOST_OPERATORS:
            raise WhatIfError(f"--family {family}: it has {len(graph)} operators; a duel has {_MOST_OPERATORS} at most")
        return graph

    return start


def _sizes(family: str, size: int) -> dict[str, Any]:
    """Return the option that makes a graph of a family larger, at some size."""
    return {name: 2**size if name == "points" else size for name in _SIZES[family]}


def _n_operators(spec: str, sizes: Mapping[str, Any]) -> float:
    """Return how many operators a family has at some sizes; infinity where it refuses them."""
    from workloads import from_spec

    try:
        return len(from_spec(spec, **sizes, seed=0))
    except GraphError:
        return inf


def _replay(path: str, as_json: bool) -> None:
    """Simulate the schedules of a file again, and say whether their makespans are the same."""
    from simsched.schedulers import SCHEDULERS

    if path in SCHEDULERS:
        raise SchedulerError(f"duel {path}: give a second scheduler, which wins, or a file with a duel")
    saved = ss.Duel.load(path)
    again = saved.replay()
    is_same = (again.losing_us, again.winning_us) == (saved.losing_us, saved.winning_us)
    if is_same:
        words = "the same"
    else:
        words = f"not that of the file, {saved.factor!r} of simsched {saved.simsched}"
    facts = [("factor, simulated again", f"{again.factor!r}, {words}")]
    data = {"factor": again.factor, "kept": saved.factor, "is_same": is_same}
    out.tell(lambda: data, [again.table, "", facts], [], as_json=as_json)
    if not is_same:
        raise IncompleteError(f"{path}: the factor is {again.factor!r}, and was {saved.factor!r}")
