"""`Schedule` to and from JSON documents."""

from typing import Any, Final

from simsched.base.io import Record, document, json_copy
from simsched.model.graph import OpGraph
from simsched.model.schedule import Placement, Schedule

FORMAT, VERSION = "simsched.schedule", 1
_NUMBERS: Final = ("stream", "stage", "group", "priority")
_FIELDS: Final = ("op", "device", *_NUMBERS)


def to_dict(schedule: Schedule) -> dict[str, Any]:
    """See `Schedule.to_dict`."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "scheduler": schedule.scheduler,
        "execution": schedule.execution,
        "estimate": schedule.estimate,
        "events": schedule.events,
        "search": {key: json_copy(value) for key, value in schedule.search.items() if not key.endswith("_s")},
        "graph": schedule.graph.to_dict(),
        "placements": [{key: getattr(row, key) for key in _FIELDS} for row in schedule.placements],
    }


def from_dict(data: Any, source: str) -> Schedule:
    """See `Schedule.from_dict`."""
    top = document(data, FORMAT, VERSION, source)
    graph = OpGraph.from_dict(top.take("graph", dict), f"{source}: graph")
    return top.build(
        Schedule,
        graph=graph,
        placements=[_read_placement(row) for row in top.records("placements")],
        execution=top.take("execution", str, "events"),
        estimate=top.take("estimate", float, None),
        scheduler=top.take("scheduler", str, "custom"),
        events=top.take("events", str, "minimal"),
        search=top.take("search", dict, {}),
    )


def _read_placement(row: Record) -> Placement:
    numbers = {key: row.take(key, int, 0) for key in _NUMBERS}
    return row.build(Placement, op=row.take("op", str), device=row.take("device", str, "gpu0"), **numbers)
