"""A study without a file: two families of random DAGs, two numbers of GPUs, three graphs each."""

import tempfile
from statistics import mean

import simsched as ss
import workloads

families = [
    {"kind": "fork-join", "n_ops": 40},
    {"kind": "cholesky", "tiles": 5},
]
study = ss.Study(
    "families", ["sequential", "heft", "etf", "hios-lp"], families, {"gpu": "a40", "gpus": [2, 4]}, seeds=3
)
with tempfile.TemporaryDirectory() as folder:
    results = ss.run_study(study, folder, load=workloads.load_kind, executor="serial")

print(results)
for gpus in (2, 4):
    for kind in ("fork-join", "cholesky"):
        rows = [row for row in results.rows if (row["workload.kind"], row["cluster.gpus"]) == (kind, gpus)]
        by_name = {
            name: mean(r["speedup"] for r in rows if r["scheduler"] == name) for name in ("heft", "etf", "hios-lp")
        }
        print(f"{kind:<9} on {gpus}:", "  ".join(f"{name} {value:.2f}x" for name, value in by_name.items()))
