"""A kept measurement campaign (`Store`) as a contact reads it: the held-out schedules of each graph, predicted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hwbackend.contact.fitted import predicted_round
from hwbackend.contact.store import HEADER, Store
from simsched.calibration import calibrate
from simsched.experiments.rounds import Round
from simsched.model.profile import Profile


def is_campaign(folder: str | Path) -> bool:
    """Return whether a folder holds a campaign."""
    return (Path(folder) / HEADER).exists()


def campaign_rounds(store: Store, *, operators: int | None = None) -> Iterator[tuple[str, Round]]:
    """Yield the held-out schedules of each graph of a campaign, measured and predicted, with backend and graph.

    Parameters
    ----------
    store
        The measurements.
    operators
        Graphs of more operators are left out, which take minutes to calibrate; None takes all.

    Raises
    ------
    CalibrationError
        If measurements do not suffice to fit anything.
    """
    for backend in dict.fromkeys(key.split("/")[1] for key in store):
        key = f"microbenchmarks/{backend}"
        if key not in store:
            continue
        profile = _profile(store, key)
        start = calibrate(profile.cluster, profile, held_out=0.0)
        prefix = f"profiles/{backend}/"
        for graph_key in store:
            if not graph_key.startswith(prefix):
                continue
            subject = graph_key.removeprefix(prefix)
            training = _profile(store, graph_key)
            if operators is not None and len(training.operators) > operators:
                continue
            held = [_profile(store, other) for other in store if other.startswith(f"held-out/{backend}/{subject}/")]
            runs = [run for one in held for run in one.runs]
            if not runs:
                continue
            yield f"{backend}/{subject}", predicted_round(start, training.runs, runs)


def campaign_device(store: Store) -> str:
    """Return where and when a campaign was measured, in a line."""
    environments: dict[str, Any] = store.header.get("environment", {})
    texts = [
        f"{name}: {where.get('device')}, {where.get('date')}, commit {where.get('commit')}"
        for name, where in environments.items()
    ]
    return "; ".join(texts) or "an unknown device"


def _profile(store: Store, key: str) -> Profile:
    return Profile.from_dict(store[key]["profile"], key)
