"""A process that measures one section of a contact."""

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from hwbackend.contact.device import ContactDevice, UnsupportedError
from hwbackend.contact.lines import ContactLines, appending
from hwbackend.contact.measure import ANCHOR_EVERY, anchor, settle
from hwbackend.contact.opening import open_device
from hwbackend.contact.sections import SECTIONS, SIZES, Bench, ContactItem
from simsched.base.errors import MissingDependencyError, SimschedError

DONE = 0
UNUSABLE = 2
CUT = 3
LOST = 75
"""Exit statuses: all items were tried; the device cannot be used; the time is over; the device does not answer."""
MOST_FAILURES: Final = 2
"""Attempts at an item, over all processes, after which it is given up."""
_PATIENCE: Final = 20.0  # s to wait for a process that still holds the file
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG of Linux's prctl


def follow_parent(parent: int) -> None:
    """Let this process be killed when the one that started it ends, so that no two ever measure.

    Parameters
    ----------
    parent
        Its number: the process ends at once if another one is its parent already.
    """
    with suppress(OSError, AttributeError):  # on systems without it the lock of the file must do
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(CUT)


def measure_section(
    folder: str,
    section: str,
    backend: str,
    options: Mapping[str, Any],
    size: str,
    *,
    seconds: float,
    begun: float,
) -> int:
    """Measure what is missing of a section, and return an exit status.

    Parameters
    ----------
    folder
        Of the contact.
    section
        A name in `SECTIONS`.
    backend, options
        The device; see `open_device`.
    size
        A name in `SIZES`.
    seconds
        Seconds that are left: the first item that would take longer ends the contact.
    begun
        Seconds since the contact began, over all its runs.

    Raises
    ------
    BackendError, FileError, FormatError
        If the device cannot be used, or the file cannot be written.
    """
    started = time.monotonic()
    device = open_device(backend, options)
    if device.virtual:
        device.idle(begun)
        offset = device.seconds() - begun
    else:
        offset = device.seconds() - (time.monotonic() - started) - begun
    with appending(folder, patience=_PATIENCE) as lines:
        clock = _ContactClock(device, offset)
        bench = Bench(device, lines.record, SIZES[size])
        items = SECTIONS[section](device.cluster, bench.size)
        before = _state(device)
        status = DONE
        if pending(bench, items):
            settle(device)
            status = _measure_items(bench, lines, items, clock, begun + seconds)
        took = round(clock.now() - begun, 4)
        lines.append(section=section, at=round(begun, 4), took=took, before=before, after=_state(device), status=status)
    return status


class _ContactClock:
    """Seconds since a contact began."""

    def __init__(self, device: ContactDevice, offset: float) -> None:
        self._device = device
        self._offset = offset
        self.anchored = -ANCHOR_EVERY

    def now(self) -> float:
        return round(self._device.seconds() - self._offset, 4)


def pending(bench: Bench, items: list[ContactItem]) -> list[ContactItem]:
    """Return the items that are missing, in their order, and last those that an earlier process began and left."""
    record = bench.record
    left = [
        item
        for item in items
        if item.key not in record.items
        and not record.is_unsupported(item.key)
        and len(record.failures.get(item.key, ())) < MOST_FAILURES
    ]
    return sorted(left, key=lambda item: item.key in record.begun and item.key not in record.failures)


def _measure_items(
    bench: Bench, lines: ContactLines, items: list[ContactItem], clock: _ContactClock, until: float
) -> int:
    parent = os.getppid()
    for item in pending(bench, items):
        if os.getppid() != parent:
            return CUT
        if clock.now() + item.seconds > until:
            return CUT
        if clock.now() - clock.anchored >= ANCHOR_EVERY:
            _anchor(bench.device, lines, clock)
        if not _measure(bench, lines, item, clock):
            return LOST
    return DONE


def _anchor(device: ContactDevice, lines: ContactLines, clock: _ContactClock) -> None:
    """Measure the anchor; a device that cannot goes without."""
    with suppress(UnsupportedError):
        lines.append(**anchor(device), at=clock.now())
    clock.anchored = clock.now()


def _measure(bench: Bench, lines: ContactLines, item: ContactItem, clock: _ContactClock) -> bool:
    """Measure an item; return whether the device still answers."""
    lines.append(begin=item.key, seconds=item.seconds)
    at = clock.now()
    try:
        found = item.measure(bench)
    except Exception as error:  # one defect must not cost all that can still be measured
        unsupported = isinstance(error, (UnsupportedError, MissingDependencyError))
        took = round(clock.now() - at, 4)
        lines.append(failed=item.key, reason=_reason(error), unsupported=unsupported, at=at, took=took)
        return unsupported or _answers(bench.device)
    lines.append(key=item.key, at=at, took=round(clock.now() - at, 4), **found)
    return "failed" not in found or _answers(bench.device)


def _answers(device: ContactDevice) -> bool:
    """Return whether a device still runs the anchor after something failed."""
    try:
        anchor(device)
    except Exception:
        return False
    return True


def _reason(error: Exception) -> str:
    """Return why something failed, with the place where it was not on purpose."""
    text = " ".join(str(error).split())
    if isinstance(error, SimschedError):
        return text
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({Path(place.filename).name}, line {place.lineno})"


def _state(device: ContactDevice) -> dict[str, Any] | None:
    state = device.state()
    return None if state is None else state.to_dict()
