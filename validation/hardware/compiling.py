"""Machine code for schedulers and simulator, made ahead: ``python -m validation.hardware.compiling``."""

import subprocess
import sys

import workloads
from simsched.base.errors import SimschedError
from simsched.model.cluster import Cluster
from simsched.schedulers import FAST_UP_TO, SCHEDULERS, schedule
from simsched.simulator import simulate


class Compiling:
    """Machine code that another process makes while this one measures what does not need it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Begin to make it; what is on disk already is only loaded."""
        self._process = subprocess.Popen([sys.executable, "-m", "validation.hardware.compiling"])

    def wait(self) -> None:
        """Wait until it is there, if it was begun."""
        if self._process is not None:
            self._process.wait()

    def end(self) -> None:
        """Leave the rest."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Schedule and simulate a small graph in every way."""
    graph = workloads.from_spec("random:layered,n_ops=12,n_layers=4,n_edges=20")
    cluster = Cluster.preset("h100")
    for name in SCHEDULERS:
        if FAST_UP_TO.get(name, 1):
            try:
                simulate(schedule(graph, cluster, name), cluster)
            except (SimschedError, ImportError):  # it is said where that scheduler is to be measured
                continue


if __name__ == "__main__":
    main()
