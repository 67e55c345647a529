"""Measurements of a GPU that were made with PyTorch alone, without simsched: operators, pairs, networks on streams.

`MEASURED` is the folder of the H100; its README says what each file holds. Times are in us.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simsched.base.errors import FormatError
from simsched.base.io import read_bytes

Json = dict[str, Any]

MEASURED: Final = Path(__file__).with_name("measurements") / "h100-2026-11-28"
TRUTH: Final = "truth.json.gz"
_MEDIAN: Final = 2  # of four quantiles: least, tenth, median, ninetieth percentile
_LIMITS: Final = (2, 4, 8, 32)


def read(folder: Path, name: str) -> Any:
    """Return the JSON value of a file, which may be compressed by gzip.

    Raises
    ------
    FileError, FormatError
        If the file cannot be read, or is damaged.
    """
    content = read_bytes(folder / name)
    try:
        return json.loads(gzip.decompress(content) if name.endswith(".gz") else content)
    except (OSError, EOFError, ValueError) as error:
        raise FormatError(f"{folder / name} is damaged: {error}") from error


def median(quantiles: list[float]) -> float:
    """Return the median of a list of four quantiles."""
    return quantiles[_MEDIAN]


@dataclass(frozen=True, slots=True)
class Network:
    """Measured medians of a network in us.

    Parameters
    ----------
    key
        Name, number format and batch, as ``"moe/fp16/1"``.
    eager
        Of a call in PyTorch, and the wait of the host for its end.
    captured
        Of a replay of the same call captured in one stream, from event to event.
    streams
        Of a replay, by the most streams over which the operators were spread.
    """

    key: str
    eager: float
    captured: float
    streams: Mapping[int, float]

    @property
    def name(self) -> str:
        """The name of the network alone."""
        return self.key.split("/")[0]

    @property
    def dtype(self) -> str:
        """The number format."""
        return self.key.split("/")[1]

    @property
    def batch(self) -> int:
        """The number of images, or the factor of the network's usual number of rows."""
        return int(self.key.split("/")[2])

    @property
    def gains(self) -> Mapping[int, float]:
        """Speedups over the same calls on one captured stream, by the most streams.

        The calls that were spread over streams keep every tensor to the end, on one stream, too. `captured` reuses the
        memory of tensors that are no longer needed, so that more of its reads hit L2: up to 16 % faster.
        """
        return {limit: self.streams[1] / self.streams[limit] for limit in _LIMITS}

    @property
    def gains_over_captured(self) -> Mapping[int, float]:
        """Speedups over the network captured as it is, by the most streams."""
        return {limit: self.captured / self.streams[limit] for limit in _LIMITS}


def networks(folder: Path = MEASURED) -> dict[str, Network]:
    """Return the measured networks by key."""
    rows: Mapping[str, Json] = read(folder, TRUTH)["networks"]
    return {
        key: Network(
            key,
            median(row["eager_wall"]),
            median(row["captured"]),
            {limit: median(row[f"streams_{limit}"]) for limit in (1, *_LIMITS)},
        )
        for key, row in rows.items()
    }


def facts(folder: Path = MEASURED) -> Json:
    """Return the headline figures of the measurements: the device, and times and gains of each network."""
    device = read(folder, TRUTH)["device"]
    rows = {}
    for key, network in networks(folder).items():
        best = min(_LIMITS, key=lambda limit: network.streams[limit])
        rows[key] = {
            "eager_us": round(network.eager, 1),
            "captured_us": round(network.captured, 1),
            "best_us": round(network.streams[best], 1),
            "best_streams": best,
            "capture_gain": round(network.eager / network.captured, 2),
            "streams_gain": round(network.gains[best], 2),
            "streams_gain_over_captured": round(network.gains_over_captured[best], 2),
        }
    return {"device": {name: device[name] for name in ("device", "torch", "cuda", "cudnn", "date")}, "networks": rows}
