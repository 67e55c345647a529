"""The sections of a contact, in the order of their worth: each has items, most important first."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from hwbackend.contact.sections.compiled import compile_items
from hwbackend.contact.sections.copies import copy_items
from hwbackend.contact.sections.dispatch import dispatch_items
from hwbackend.contact.sections.doctor import doctor_items
from hwbackend.contact.sections.graphs import graph_items
from hwbackend.contact.sections.host import host_items
from hwbackend.contact.sections.item import SIZES, Bench, ContactItem, Size
from hwbackend.contact.sections.launches import launch_items
from hwbackend.contact.sections.saturation import saturation_items
from hwbackend.contact.sections.sharing import sharing_items
from hwbackend.contact.sections.solo import solo_items
from simsched.model import Cluster

__all__ = ["SECTIONS", "SIZES", "Bench", "ContactItem", "Size", "all_items"]

SECTIONS: Final[Mapping[str, Callable[[Cluster, Size], list[ContactItem]]]] = MappingProxyType(
    {
        "doctor": lambda _cluster, _size: doctor_items(),
        "host": lambda _cluster, _size: host_items(),
        "dispatch": lambda _cluster, _size: dispatch_items(),
        "saturation": lambda _cluster, _size: saturation_items(),
        "sharing": lambda cluster, _size: sharing_items(cluster),
        "networks": lambda _cluster, size: graph_items("networks", size.networks, size.turns),
        "compile": lambda _cluster, _size: compile_items(),
        "launches": lambda _cluster, _size: launch_items(),
        "copies": lambda cluster, _size: copy_items(cluster),
        "solo": lambda _cluster, size: solo_items(size.shapes),
        "dags": lambda _cluster, size: graph_items("dags", size.graphs, size.turns),
    }
)
"""Sections by name, most important first: each returns its items for a cluster and a size."""


def all_items(cluster: Cluster, size: Size) -> dict[str, list[ContactItem]]:
    """Return the items of every section, in the order in which they are measured."""
    return {name: items(cluster, size) for name, items in SECTIONS.items()}
