"""What every backend promises, on every backend that can be used here."""

import importlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hwbackend import get
from simsched.base.errors import SimschedError
from simsched.testing import check_backend, diamond, schedules_of


@dataclass(frozen=True)
class Candidate:
    """A backend: how it is made, by how many us its clocks may err, and whether it may be missing here."""

    name: str
    make: Callable[[], Any]
    clock: float = 0.0
    optional: bool = False
    marks: tuple[Any, ...] = ()


def backends_here() -> Iterator[Candidate]:
    yield Candidate("synthetic", partial(get, "synthetic", gpu="k80", outliers=0.2))
    yield Candidate("synthetic-2", partial(get, "synthetic", gpu="a40", gpus=2))
    yield Candidate("recorded", _recorded, 1e-5)  # times are written to a picosecond
    yield Candidate("cupy", partial(_cupy_on_a_fake, virtual_devices=2), 1.0)
    yield Candidate("cupy-2", partial(_cupy_on_a_fake, gpus=2), 1.0)
    yield Candidate("torch", partial(get, "torch", device="cpu"), 5.0, optional=True, marks=(pytest.mark.torch,))


def _cupy_on_a_fake(gpus: int = 1, **options: Any) -> Any:
    backend = importlib.import_module("hwbackend.cupy_backend")
    return backend.CupyBackend(api=importlib.import_module("fake_cuda").FakeCuda(gpus), **options)


def _recorded() -> Any:
    """Return a backend with the files of all runs that are asked for."""
    source = get("synthetic", gpu="k80")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source.profile(diamond(), in_situ=1).save(folder / "profile.json")
        for i, plan in enumerate(schedules_of(source)):
            source.replay(plan, repeats=3, warmup=0).save(folder / f"run-{i}.json")
        return get("recorded", folder=folder)


@pytest.mark.parametrize("candidate", [pytest.param(c, marks=c.marks, id=c.name) for c in backends_here()])
def test_a_backend_keeps_its_promises(candidate):
    try:
        backend = candidate.make()
    except (ImportError, SimschedError) as error:
        if not candidate.optional:
            raise
        pytest.skip(f"{candidate.name} cannot be used here: {error}")
    check_backend(backend, clock_us=candidate.clock).require()
