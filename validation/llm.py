"""Steps of language models beside their measured layers, of which nothing was fitted.

    python -m validation.llm --data FOLDER [--json FILE]

FOLDER has ``DEVICE-MODEL.mlp.csv.gz`` of microsoft/vidur (MIT; `data/profiling/compute` at 7d47513), which are not part
of the project: times of each operator of one layer by number of tokens and tensor parallelism. A step is one layer of
``llm:config.json``, simulated; the measured step is the sum of a row, to which both sides add the attention. Its time
was not measured: it is its bytes over the bandwidth of the data sheet on the measured side.

The split, stated before this program was first run: the rows of Llama-2-7B without tensor parallelism may be looked at
(two of them, with 4,032 and 4,096 tokens, had been). All other files and all other rows are held out, so that a device,
a model and a number of GPUs are each new at least once. One decode step (48 sequences of 2,048 tokens) and one prefill
step (one prompt of 2,016 tokens) count, or the rows of the nearest numbers of tokens (the tables have no 2,016); all
other numbers of tokens are reported beside them.
"""

import argparse
import csv
import gzip
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from simsched.base.errors import FileError, SimschedError
from simsched.base.io import dump_json, read_bytes, write_file
from simsched.base.units import MS
from simsched.model import OpGraph, operator_times
from validation.h100.figures import Case, Figure, Section, bias, documents, largest_error, mean_error
from validation.h100.vidur import cluster
from workloads import from_spec

SUFFIX: Final = ".mlp.csv.gz"
COUNTED: Final = {"decode": 48, "prefill": 2016}
"""Tokens of the steps that count, by phase."""
CONTEXT: Final = 2048
"""Tokens of each sequence that decodes."""
LOOKED_AT: Final = ("Llama-2-7b-hf", "1")
"""Model and tensor parallelism of the rows that may be looked at."""
TARGET: Final = 0.15
MEASURED: Final[Mapping[str, tuple[str, ...]]] = {
    "input_norm": ("input_layernorm",),
    "qkv": ("attn_pre_proj",),
    "rope": ("attn_rope",),
    "o_proj": ("attn_post_proj",),
    "post_norm": ("post_attention_layernorm", "add"),
    "up_gate": ("mlp_up_proj",),
    "act": ("mlp_act",),
    "down": ("mlp_down_proj",),
}
"""Columns of a row by the operator of a layer that does the same."""
Row = Mapping[str, str]


def config_of(row: Row) -> dict[str, Any]:
    """Return the ``config.json`` of the model that a row was measured on, with one layer."""
    return {
        "model_type": "llama",
        "hidden_size": int(row["n_embd"]),
        "intermediate_size": int(row["n_expanded_embd"]),
        "num_attention_heads": int(row["n_head"]),
        "num_key_value_heads": int(row["n_kv_head"]),
        "vocab_size": int(row["vocab_size"]),
        "num_hidden_layers": 2,
        "torch_dtype": "float16",
    }


def measured_us(row: Row, operator: str) -> float:
    """Return the median time in us of an operator of a layer."""
    return sum(float(row[f"time_stats.{name}.median"]) for name in MEASURED[operator]) * MS


def steps(path: Path) -> Iterator[tuple[str, Row, dict[str, Case], Case]]:
    """Yield each row as a decode and as a prefill step: phase, row, its operators, and the whole layer.

    The layer that is taken is the second: the first has no residual to add.
    """
    device = path.name.partition("-")[0]
    first = cluster(device).devices[0]
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(read_bytes(path)).decode())))
    gated = [row for row in rows if row["use_gated_mlp"] == "True"]
    with TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        for row in gated:
            config.write_text(json.dumps(config_of(row)))
            tokens = int(row["num_tokens"])
            for phase, sizes in (("decode", f"batch={tokens},context={CONTEXT}"), ("prefill", f"context={tokens}")):
                spec = f"llm:{config},phase={phase},{sizes},tp={row['num_tensor_parallel_workers']}"
                graph = from_spec(spec)
                times = dict(zip(graph.names, map(float, operator_times(graph, first)), strict=True))
                cases = {name: Case(name, times[f"layer1.{name}"], measured_us(row, name)) for name in MEASURED}
                attention = attention_bytes(graph) / first.bandwidth
                whole = Case(
                    f"{phase} {tokens}",
                    sum(case.predicted for case in cases.values()) + times["layer1.attention"],
                    sum(case.measured for case in cases.values()) + attention,
                )
                yield phase, row, cases, whole


def attention_bytes(graph: OpGraph) -> float:
    """Return the bytes that the attention of a layer moves."""
    return float(graph["layer1.attention"].nbytes)


def llm_section(folder: Path) -> Section:
    """Return how well steps are predicted.

    Raises
    ------
    FileError
        If the folder has no such files.
    """
    files = sorted(folder.glob(f"*{SUFFIX}"))
    if not files:
        raise FileError(f"{folder}: no file ends in {SUFFIX}; give the folder with the tables of microsoft/vidur")
    counted: list[Case] = []
    every: list[Case] = []
    operators: dict[str, list[Case]] = {name: [] for name in MEASURED}
    table = []
    for path in files:
        device, _, model = path.name.removesuffix(SUFFIX).partition("-")
        found = [*steps(path)]
        known = np.array([int(row["num_tokens"]) for _, row, _, _ in found])
        nearest = {phase: int(known[np.abs(known - n).argmin()]) for phase, n in COUNTED.items()} if found else {}
        for phase, row, cases, whole in found:
            shares = row["num_tensor_parallel_workers"]
            is_held_out = (model, shares) != LOOKED_AT
            if is_held_out:
                every.append(whole)
                for name, case in cases.items():
                    operators[name].append(case)
            if int(row["num_tokens"]) == nearest[phase]:
                if is_held_out:
                    counted.append(whole)
                split = "held out" if is_held_out else "looked at"
                ratio = whole.predicted / whole.measured
                table.append(
                    (
                        device,
                        model,
                        shares,
                        phase,
                        split,
                        f"{whole.measured:.0f}",
                        f"{whole.predicted:.0f}",
                        f"{ratio:.2f}",
                    )
                )
    figures = [
        Figure("steps that count, held out: mean abs ln", mean_error(counted), most=TARGET),
        Figure("steps that count, held out: largest", largest_error(counted)),
        Figure("steps that count, held out: bias", bias(counted)),
        Figure("steps of all numbers of tokens, held out: mean abs ln", mean_error(every), most=TARGET),
        *(Figure(f"{name}, held out: mean abs ln", mean_error(cases)) for name, cases in operators.items()),
        *(Figure(f"{name}, held out: bias", bias(cases)) for name, cases in operators.items()),
    ]
    columns = ("device", "model", "tp", "step", "split", "measured us", "predicted us", "ratio")
    return Section("Steps of language models", figures, columns, table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with DEVICE-MODEL.mlp.csv.gz")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    try:
        section = llm_section(options.data)
        print(*section.lines(), sep="\n")
        if options.json:
            write_file(options.json, dump_json(documents([section])))
    except SimschedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
