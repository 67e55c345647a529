"""Claims of IOS (Ding, Zhu, Jia, Pekhimenko, Han, MLSys 2021, arXiv:2011.01302).

Its figures were made by the released search, whose groups have one root: that is what is run here, unless a claim says
otherwise. Stages are valued as its engine measures them (`MeasuredStage`), latencies are simulated makespans.
"""

from typing import Final

from validation.papers.claims import Claim
from validation.papers.ios_counts import COUNTS
from validation.papers.ios_details import DETAILS
from validation.papers.ios_latency import LATENCIES
from validation.papers.ios_runs import TITLES

# ms on a V100, README 4.2.2 and 4.2.7: TensorFlow, TensorFlow-XLA, TASO, TVM-cuDNN, TensorRT, IOS; TVM-AutoTune
_FRAMEWORKS: Final = ("TensorFlow", "XLA", "TASO", "TVM-cuDNN", "TensorRT", "IOS")
_FIG_7: Final = {
    "inception_v3": (7.95, 9.95, 5.7, 4.88, 5.21, 4.03),
    "randwire": (12.06, 16.61, 8.42, 6.86, 8.33, 6.02),
    "nasnet_a_large": (24.73, 34.66, 21.29, 26.87, 24.66, 16.04),
    "squeezenet": (2.63, 4.08, 0.82, 0.9, 0.8, 0.73),
}
# ms of Inception-v3 on a V100 by batch, README 4.2.6
_TENSORRT: Final = {1: 4.82, 16: 17.82, 32: 29.97, 64: 56.25, 128: 106.84}
_FIG_12: Final = {"inception_v3": 4.95, "randwire": 5.26, "nasnet_a_large": 14.67, "squeezenet": 0.75}

CLAIMS: Final[tuple[Claim, ...]] = (
    *COUNTS,
    *LATENCIES,
    Claim(
        "ios-fig14-bars", "IOS", "Fig. 14", "speedup on RTX 2080 Ti by network and schedule (ours: see the range)", {},
        "not collected", missing="source not available: of this figure only the range of IOS-Both was collected",
    ),
    *DETAILS,
    *(
        Claim(
            f"ios-fig7-{name}", "IOS", "Fig. 7", f"{TITLES[name]} on V100, batch 1: latency in other frameworks",
            dict(zip(_FRAMEWORKS, ms, strict=True)), "table of the released README", unit="ms",
            missing="not reproducible here: needs the frameworks and their kernels",
        )
        for name, ms in _FIG_7.items()
    ),
    Claim(
        "ios-fig12", "IOS", "Fig. 12", "latency on V100, batch 1, of TVM-AutoTune",
        {TITLES[name]: ms for name, ms in _FIG_12.items()}, "output printed in the released README", unit="ms",
        missing="not reproducible here: needs TVM and its tuned kernels",
    ),
    Claim(
        "ios-fig11-tensorrt", "IOS", "Fig. 11", "Inception-v3 on V100: latency in TensorRT by batch",
        {f"batch {batch}": ms for batch, ms in _TENSORRT.items()}, "output printed in the released README", unit="ms",
        missing="not reproducible here: needs TensorRT and its kernels",
    ),
)  # fmt: skip
