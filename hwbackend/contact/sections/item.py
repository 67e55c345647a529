"""Items, of which the sections of a contact consist."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hwbackend.contact.device import ContactDevice
from hwbackend.contact.lines import ContactRecord
from hwbackend.contact.measure import in_turns
from simsched.model import Schedule

Json = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How much a contact measures.

    Parameters
    ----------
    networks, graphs
        Networks, and random graphs of synthetic kernels, by name: workload and batch.
    in_situ
        Training schedules of each graph beside the sequential ones.
    turns
        Items into which the training schedules of a graph, and its held-out ones, are split.
    schedulers
        Schedulers whose schedules are held out; empty for all but "search".
    shapes
        Most operators of a kind that are measured alone.
    """

    networks: Mapping[str, tuple[str, int]]
    graphs: Mapping[str, tuple[str, int]]
    in_situ: int = 8
    turns: int = 3
    schedulers: tuple[str, ...] = ()
    shapes: int = 100


def _one(*names: str) -> dict[str, tuple[str, int]]:
    return {name: (name, 1) for name in names}


SIZES: Final[Mapping[str, Size]] = {
    "full": Size(
        _one("squeezenet", "inception_v3", "googlenet") | {"inception_v3@16": ("inception_v3", 16)},
        {
            f"dag{seed}": (f"random:layered,n_ops=30,n_layers=6,n_edges=60,time=20:200,seed={seed}", 1)
            for seed in (1, 2)
        },
    ),
    "small": Size(
        _one("tiny_inception"),
        {"dag1": ("random:layered,n_ops=14,n_layers=4,n_edges=24,time=20:100,seed=1", 1)},
        in_situ=4,
        turns=2,
        schedulers=("sequential", "greedy", "heft", "opara"),
        shapes=2,
    ),
}
"""By name; "small" is a trial of everything."""


@dataclass
class Bench:
    """A device, what was measured on it before, and how much is to be measured.

    Attributes
    ----------
    memory
        What items of a section keep for later ones.
    """

    device: ContactDevice
    record: ContactRecord
    size: Size
    memory: Json = field(default_factory=dict)


@dataclass(frozen=True)
class ContactItem:
    """One item of a section.

    Parameters
    ----------
    key
        Its name in the file, which begins with the section's name.
    seconds
        How long it takes, about: it is not begun where less time is left.
    measure
        Returns what was measured.
    """

    key: str
    seconds: float
    measure: Callable[[Bench], Json]


def turns_of(key: str, plans: Callable[[Bench], list[Schedule]], seconds: float) -> ContactItem:
    """Return an item of schedules that are measured in turns for some seconds."""
    return ContactItem(key, 1.5 * seconds, lambda bench: in_turns(bench.device, plans(bench), seconds))
