"""Graphs, schedules and profiles in the formats of other tools, and in our own.

>>> from workloads.formats import FORMATS
>>> list(FORMATS)
['simsched', 'onnx', 'pt2', 'python', 'dot', 'stg', 'kineto', 'rows', 'hios', 'ios', 'hios-graph']

`read` and `write` choose the format by the file. Each format also has a module, with its documentation: `native`,
`dot`, `stg` and `rows`; the packages `onnx`, `torch`, `kineto` and `ios_hios` hold the larger ones. `torch_fx` reads
modules of PyTorch from memory; `OpGraph.from_networkx` reads graphs of networkx.
"""

from pathlib import Path

from workloads.formats.registry import (
    FORMATS,
    SUFFIXES,
    Format,
    as_graph,
    format_of,
    read,
    read_graph,
    reader_of,
    write,
)

__all__ = ["FORMATS", "SUFFIXES", "Format", "as_graph", "format_of", "read", "read_graph", "reader_of", "write"]

# modules that moved into a package can be imported under their former names, too
__path__.append(str(Path(__file__).parent / "former"))
