"""The report on one graph, for the log and `explain`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hwbackend.torch.inductor.choice import PLAIN, VariantChoice


@dataclass(frozen=True)
class Report:
    """Report on one graph.

    Parameters
    ----------
    name
        How the log calls the graph.
    reason
        Why nothing was measured; None where it was.
    choice
        The measurement.
    remembered
        Whether an earlier process measured it.
    failures
        Why variants were not tried, by their names.
    kernels, streams, waits
        Kernels that launch, streams in use and waits of the variant with streams; 0 without one.
    peak, plain_peak
        Bytes that intermediate values need with streams, and in the order of Inductor without reuse.
    timed
        Of how many kernels the scheduler saw a time of each source: ``"measured"``, ``"estimated"`` by Inductor, or
        that of the ``"model"``; empty without streams.
    unmeasured
        Why no times were measured; None where they were.
    """

    name: str
    reason: str | None = None
    choice: VariantChoice | None = None
    remembered: bool = False
    failures: Mapping[str, str] = field(default_factory=dict)
    kernels: int = 0
    streams: int = 0
    waits: int = 0
    peak: float = 0.0
    plain_peak: float = 0.0
    timed: Mapping[str, int] = field(default_factory=dict)
    unmeasured: str | None = None

    @property
    def chosen(self) -> str:
        """The variant that runs."""
        if self.choice is None:
            return PLAIN
        return self.choice.name

    def __str__(self) -> str:
        parts = [f"{self.name}: runs as {self.chosen}"]
        if self.reason is not None:
            parts.append(self.reason)
        if self.choice is not None:
            times = ", ".join(f"{name} {time:.1f} us" for name, time in self.choice.times.items())
            if self.remembered:
                source = "remembered"
            else:
                source = f"{self.choice.rounds} rounds"
            parts.append(f"{times} ({source})")
        parts += [f"{name} not tried: {why}" for name, why in self.failures.items()]
        if self.streams:
            parts.append(
                f"{self.kernels} kernels on {self.streams} streams with {self.waits} waits, intermediate values of "
                f"{self.peak:.0f} bytes ({self.plain_peak:.0f} in the order of Inductor)"
            )
        if self.timed:
            text = ", ".join(f"{count} {source}" for source, count in self.timed.items())
            if self.unmeasured is not None:
                text += f" (not measured: {self.unmeasured})"
            parts.append(f"times of kernels: {text}")
        return "; ".join(parts)
