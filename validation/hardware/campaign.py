"""The measurement campaign: ``python -m validation.hardware.campaign FOLDER [--backend NAME]... [--seconds S]``.

Sections are run in order of importance, each within its share of the time that is left, and once more while
there is time. What is whole in the folder is not measured again. Ends with 0 when everything was tried or the time is
over, 2 if nothing can be measured here, and 75 if the device does not answer any more: in a new process it may.
"""

import argparse
import faulthandler
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import hwbackend
from hwbackend import Backend
from hwbackend.contact.store import Store
from simsched.base.errors import BackendError, FormatError, SimschedError
from validation.hardware.sections import PLANS, Bench, Measure, NotYetError, Section, pulse, sections_of

OK, UNUSABLE, AGAIN = 0, 2, 75
USUAL_SECONDS: Final = 440.0
MOST_ATTEMPTS: Final = 2  # at an item, over all processes
_STUCK: Final = 60.0  # s after which an item is given up with its process
_GRACE: Final = 10.0  # s that an item may take beyond the end

Tell = Callable[[str], None]


class DeviceLostError(BackendError):
    """A device that does not answer any more."""


@dataclass
class Campaign:
    """One process's part of a campaign.

    Parameters
    ----------
    store
        The measurements.
    sections
        Items to measure, most important first.
    seconds
        After which no item is begun any more.
    check
        Raises if the device does not answer; asked after an item has failed.
    clock
        Seconds from any point in time on.
    tell
        Called with a line for each section and each item that is given up.
    watched
        Whether an item that hangs ends the process.
    """

    store: Store
    sections: Sequence[Section]
    seconds: float
    check: Callable[[], object] = lambda: None
    clock: Callable[[], float] = time.monotonic
    tell: Tell = lambda _line: None
    watched: bool = False
    _tried: set[str] = field(default_factory=set)
    _seconds: dict[str, list[float]] = field(default_factory=dict)

    def run(self) -> None:
        """Measure the missing items while there is time.

        Raises
        ------
        DeviceLostError
            If the device does not answer after an item has failed; a new process may go on.
        """
        begun = self.clock()
        end = begun + self.seconds
        for first_time in (True, False):
            for i, section in enumerate(self.sections):
                left = max(0.0, end - self.clock())
                part = section.share / sum(later.share for later in self.sections[i:])
                self._run(section, self.clock() + left * part if first_time else end, end)
        self.store.header["unmeasured"] = {
            key: self._skipped.get(key, {}).get("reason", "no time left")
            for section in self.sections
            for key in section.items
            if key not in self.store
        }
        self.store.save_header()

    def _run(self, section: Section, until: float, end: float) -> None:
        begun, n = self.clock(), 0
        for key, measure in section.items.items():
            if key in self.store or key in self._tried or self._attempts(key) >= MOST_ATTEMPTS:
                continue
            at = self.clock()
            taken = self._seconds.setdefault(section.name, [])
            if at >= until or at + (median(taken) if taken else 0.0) > end:
                break
            self._tried.add(key)
            n += 1
            self._measure(key, measure, end - at)
            taken.append(self.clock() - at)
        if n:
            seconds = self.store.header.setdefault("seconds", {})
            seconds[section.name] = round(seconds.get(section.name, 0.0) + self.clock() - begun, 1)
            done = sum(key in self.store for key in section.items)
            self.tell(f"{section.name}: {done} of {len(section.items)} ({self.clock() - begun:.1f} s)")

    @property
    def _skipped(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.store.header.setdefault("skipped", {})
        return found

    def _attempts(self, key: str) -> int:
        return int(self._skipped.get(key, {}).get("attempts", 0))

    def _measure(self, key: str, measure: Measure, left: float) -> None:
        reason = "the process ended while it was measured"
        row: dict[str, Any] = {"attempts": self._attempts(key) + 1, "reason": reason}
        self._skipped[key] = row
        self.store.save_header()  # before it begins: an item that kills the process must not kill every other one
        if self.watched:
            faulthandler.dump_traceback_later(min(_STUCK, left + _GRACE), exit=True)
        try:
            self.store.put(key, measure())
            del self._skipped[key]
            return
        except NotYetError as error:
            row["attempts"] -= 1
            row["reason"] = str(error)
            return
        except Exception as error:  # one defect must not cost all that could still be measured
            row["reason"] = str(error) if isinstance(error, SimschedError) else f"{type(error).__name__}: {error}"
            self.tell(f"skipped {key}: {row['reason']}")
        finally:
            if self.watched:
                faulthandler.cancel_dump_traceback_later()
        self.store.save_header()
        try:
            self.check()
        except Exception as error:  # whatever the driver says then
            raise DeviceLostError(f"the device does not answer after {key}: {error}") from error


def opened(names: Sequence[str], tell: Tell, *, alike: bool = False) -> list[tuple[Backend, dict[str, str]]]:
    """Return the usable backends and their descriptions of the environment; the first one must be among them.

    Parameters
    ----------
    names
        Of the backends.
    tell
        Called with a line for each that is left out.
    alike
        Whether those on other devices than the first one are left out, such as PyTorch without CUDA.

    Raises
    ------
    BackendError
        If the first one cannot be used.
    """
    known = {entry.name: entry for entry in hwbackend.available()}
    found: list[tuple[Backend, dict[str, str]]] = []
    for i, name in enumerate(names):
        try:
            if name in known and not known[name].usable:
                raise BackendError(known[name].reason)
            backend = hwbackend.get(name)
            environment = dict(pulse(backend).environment)
            device = environment.get("device")
            if alike and found and device != found[0][1].get("device"):
                raise BackendError(f"it runs on {device}")
            found.append((backend, environment))
        except Exception as error:  # whatever a broken installation says
            if i == 0:
                raise BackendError(f"backend {name} cannot be used here: {error}") from error
            tell(f"skipped backend {name}: {error}")
    return found


def prepare(store: Store, environments: dict[str, dict[str, str]], plan: str) -> None:
    """Write the place and the plan of the measurement; measurements of several devices are never mixed.

    Raises
    ------
    FormatError
        If the folder holds another device's measurements or plan.
    """
    header = store.header
    if header.setdefault("plan", plan) != plan:
        raise FormatError(f"{store.folder} holds plan {header['plan']!r}, not {plan!r}: choose another folder")
    known: dict[str, dict[str, str]] = header.setdefault("environment", {})
    for name, environment in environments.items():
        before = known.setdefault(name, environment).get("device")
        if before != environment.get("device"):
            raise FormatError(
                f"{store.folder} holds measurements of {before}, not of {environment.get('device')}: choose another "
                f"folder"
            )
    store.save_header()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--backend", action="append", help="by default cupy, and torch where it can be used")
    parser.add_argument("--seconds", type=float, default=USUAL_SECONDS)
    parser.add_argument("--plan", choices=tuple(PLANS), default="full")
    options = parser.parse_args(arguments)

    def tell(line: str) -> None:
        print(line, flush=True)

    begun = time.monotonic()
    try:
        backends = opened(options.backend or ["cupy", "torch"], tell, alike=not options.backend)
        store = Store(options.folder)
        prepare(store, {backend.name: environment for backend, environment in backends}, options.plan)
        sections = sections_of([Bench(backend, store, PLANS[options.plan]) for backend, _ in backends])
        Campaign(
            store,
            sections,
            options.seconds - (time.monotonic() - begun),
            tell=tell,
            watched=True,
            check=lambda: [pulse(backend) for backend, _ in backends],
        ).run()
    except SimschedError as error:
        sys.stderr.write(f"error: {error}\n")
        return AGAIN if isinstance(error, DeviceLostError) else UNUSABLE
    tell(f"{len(store)} items in {options.folder}, {len(store.header['unmeasured'])} unmeasured")
    return OK


if __name__ == "__main__":
    sys.exit(main())
