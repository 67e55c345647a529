"""All-reduces of A100 and H100 as microsoft/vidur measured them, beside what the model of links says.

    python -m validation.collectives --data FOLDER [--fit]

The files belong to others (MIT, Microsoft) and are not part of the project: ``DEVICE_dgx/all_reduce.csv`` of
`data/profiling/network` at 7d47513, here called ``net-DEVICE_dgx-all_reduce.csv.gz``.

**The split** was fixed before anything was fitted. Ranks of one node only; of these 2 and 8 ranks, and sizes whose
octave is odd (2 to 4 KiB, 8 to 16 KiB, ...), are for the fit. Held out are the other octaves, and 4 ranks at all sizes.
`--fit` fits start, step and efficiency of the links to the fitted rows by the mean of abs ln, and prints them: those of
`nvlink3` and `nvlink4` in the presets are such ones, rounded. Their library is NCCL, so the algorithm is the quicker of
ring and tree. Rows over several nodes are of another network than the preset `network`; they are printed, and nothing
was fitted to them.
"""

import argparse
import csv
import gzip
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

import simsched as ss
from simsched.base.io import read_bytes
from simsched.base.units import MS
from simsched.model.exchange import exchange
from validation.evidence import table as lines_of

DEVICES: Final = {"a100": "A100", "h100": "H100"}
ALGORITHMS: Final = ("ring", "tree")
HELD_OUT_RANKS: Final = 4
MOST: Final = 0.15
_STARTS: Final = 6
_BEGIN: Final = (20.0, 2.0, 0.7)
_MEDIAN: Final = "time_stats.all_reduce.median"


@dataclass(frozen=True)
class Row:
    """An all-reduce that was measured.

    Parameters
    ----------
    ranks, in_node
        Devices in all, and in each node.
    nbytes
        Size of the buffer in bytes.
    time
        Median in us.
    """

    ranks: int
    in_node: int
    nbytes: float
    time: float

    @property
    def part(self) -> str:
        """What the row is for."""
        if self.ranks != self.in_node:
            return "several nodes"
        if self.ranks == HELD_OUT_RANKS:
            return "held out: 4 ranks"
        return "fitted" if int(self.nbytes).bit_length() % 2 == 0 else "held out: sizes"


PARTS: Final = ("fitted", "held out: sizes", "held out: 4 ranks", "held out", "several nodes")


def rows_of(path: Path) -> list[Row]:
    """Return the rows of a file."""
    text = gzip.decompress(read_bytes(path)).decode()
    return [
        Row(int(row["num_workers"]), int(row["devices_per_node"]), float(row["size"]), float(row[_MEDIAN]) * MS)
        for row in csv.DictReader(io.StringIO(text))
    ]


def cluster_of(device: str, row: Row) -> ss.Cluster:
    """Return the cluster of a row, by the preset of its device."""
    return ss.Cluster.preset(device, row.ranks, gpus_per_node=row.in_node)


def predicted(rows: Sequence[Row], clusters: Callable[[Row], ss.Cluster]) -> np.ndarray:
    """Return the times of rows in us by the quicker algorithm of the library, shape (n_rows,)."""
    known: dict[tuple[int, int], ss.Cluster] = {}
    found = []
    for row in rows:
        key = row.ranks, row.in_node
        if key not in known:
            known[key] = clusters(row)
        topology = known[key].topology
        asked = (ss.Collective("all_reduce", row.nbytes, row.ranks, algorithm=name) for name in ALGORITHMS)
        found.append(min(exchange(each, topology, range(row.ranks)).time for each in asked))
    return np.array(found)


def errors(device: str, rows: Sequence[Row]) -> np.ndarray:
    """Return ln(predicted / measured) of each row, shape (n_rows,)."""
    return np.log(predicted(rows, lambda row: cluster_of(device, row)) / [row.time for row in rows])


def is_of(row: Row, part: str) -> bool:
    """Return whether a row is of a part, or of one whose name goes on."""
    return row.part == part or row.part.startswith(f"{part}:")


def table(folder: Path) -> list[tuple[str, ...]]:
    """Return a row for each device and part: n, mean abs ln, bias."""
    found = []
    for device, name in DEVICES.items():
        rows = rows_of(folder / f"net-{device}_dgx-all_reduce.csv.gz")
        logs = errors(device, rows)
        for part in PARTS:
            chosen = logs[[is_of(row, part) for row in rows]]
            if len(chosen):
                found.append((name, part, str(len(chosen)), f"{abs(chosen).mean():.3f}", f"{chosen.mean():+.3f}"))
    return found


def fit(device: str, folder: Path) -> tuple[float, float, float]:
    """Return start and step in us and the efficiency that fit the fitted rows of a device best."""
    from scipy.optimize import minimize

    rows = [row for row in rows_of(folder / f"net-{device}_dgx-all_reduce.csv.gz") if row.part == "fitted"]
    measured = np.log([row.time for row in rows])

    def numbers(x: np.ndarray) -> tuple[float, float, float]:
        return float(np.exp(x[0])), float(np.exp(x[1])), float(1.0 / (1.0 + np.exp(-x[2])))

    def loss(x: np.ndarray) -> float:
        values = dict(zip(("start", "step", "efficiency"), numbers(x), strict=True))
        times = predicted(rows, lambda row: cluster_of(device, row).replace_links(**values))
        return float(abs(np.log(times) - measured).mean())

    start, step, efficiency = _BEGIN
    begin = np.array([np.log(start), np.log(step), np.log(efficiency / (1 - efficiency))])
    tried = [
        minimize(loss, begin + np.random.default_rng(seed).normal(0, 0.4, 3), method="Nelder-Mead")
        for seed in range(_STARTS)
    ]
    return numbers(min(tried, key=lambda each: each.fun).x)


def main() -> None:
    """Print the table, and what fits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with net-DEVICE_dgx-all_reduce.csv.gz")
    parser.add_argument("--fit", action="store_true", help="fit start, step and efficiency to the fitted rows")
    asked = parser.parse_args()
    for line in lines_of(("device", "rows", "n", "mean abs ln", "bias"), table(asked.data)):
        print(line)
    if asked.fit:
        for device, name in DEVICES.items():
            print(f"{name}: start {{:.1f}} us, step {{:.2f}} us, efficiency {{:.3f}}".format(*fit(device, asked.data)))


if __name__ == "__main__":
    main()
