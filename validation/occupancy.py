"""The occupancy calculator against NVIDIA's own, on random kernels.

    python -m validation.occupancy --cases 60000 --seed 1 --log validation/occupancy.json

Compiles `cuda_occupancy.h` of an installed CUDA toolkit (13 or older) with the host's C++ compiler; needs no GPU.
"""

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from simsched.base.errors import ClusterError, SimschedError
from simsched.base.io import dump_json, write_file
from simsched.model import Cluster, Device, Kernel, occupancy
from validation.evidence import options

MODELS = {"3.7": "k80", "7.0": "v100", "7.5": "rtx2080ti", "8.0": "a100", "8.6": "a40", "9.0": "h100"}


@dataclass(frozen=True)
class Case:
    """A kernel on a device of some compute capability."""

    capability: str
    device: Device
    kernel: Kernel

    def line(self) -> str:
        """Return the case as the oracle reads it."""
        d = self.device
        k = self.kernel
        device = (d.threads_per_sm, d.registers_per_sm, d.shared_memory_per_sm)
        block = (d.shared_memory_per_block, d.shared_memory_reserved)
        figures = (*self.capability.split("."), *device, *block, k.threads, k.registers, k.shared_memory)
        return " ".join(map(str, figures))

    def ours(self) -> int:
        """Return blocks per SM by our calculator, 0 if none fits."""
        try:
            return occupancy(self.device, self.kernel).blocks
        except ClusterError:
            return 0


def random_cases(n: int, *, rng: np.random.Generator | int) -> list[Case]:
    """Draw kernels: capability, 1-1024 threads, 1-255 registers, and half of the time shared memory, all uniform."""
    rng = np.random.default_rng(rng)
    devices = {cc: Cluster.preset(model).devices[0] for cc, model in MODELS.items()}
    cases = []
    for _ in range(n):
        capability = list(MODELS)[rng.integers(len(MODELS))]
        device = devices[capability]
        shared = int(rng.integers(device.shared_memory_per_block + 1)) if rng.random() < 0.5 else 0
        kernel = Kernel(1, int(rng.integers(1, 1025)), int(rng.integers(1, 256)), shared)
        cases.append(Case(capability, device, kernel))
    return cases


def find_header() -> Path | None:
    """Return the newest `cuda_occupancy.h` under /usr/local, or None."""
    return max(Path("/usr/local").glob("cuda*/include/cuda_occupancy.h"), default=None)


def oracle(cases: list[Case], header: Path) -> list[int]:
    """Return NVIDIA's blocks per SM for each case."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(__file__).with_suffix(".cpp")
        binary = Path(folder, "oracle")
        subprocess.run(["g++", "-O1", f"-I{header.parent}", str(source), "-o", str(binary)], check=True)
        lines = "\n".join(case.line() for case in cases)
        answer = subprocess.run([str(binary)], input=lines, capture_output=True, text=True, check=True)
    return [int(line) for line in answer.stdout.split()]


def main() -> None:
    """Compare, print the count, and write the log."""
    given = options(__doc__, cases=10_000, seed=0, log=None)
    header = find_header()
    if header is None:
        sys.exit("error: no CUDA toolkit with cuda_occupancy.h under /usr/local")
    start = perf_counter()
    cases = random_cases(given.cases, rng=given.seed)
    theirs = oracle(cases, header)
    differ = [case for case, blocks in zip(cases, theirs, strict=True) if case.ours() != blocks]
    log = {
        "cases": len(cases),
        "seed": given.seed,
        "different": len(differ),
        "toolkit": header.parts[-3],
        "seconds": round(perf_counter() - start, 2),
    }
    print(log)
    if given.log:
        write_file(given.log, dump_json(log))
    if differ:
        raise SimschedError(f"differs on {differ[0]}")


if __name__ == "__main__":
    main()
