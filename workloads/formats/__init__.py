"""Graphs, schedules and profiles in the formats of other tools, and in our own.

>>> from workloads.formats import FORMATS
>>> list(FORMATS)
['simsched', 'onnx', 'dot', 'stg', 'kineto', 'rows', 'hios', 'ios', 'hios-graph']

`read` and `write` choose the format by the file; each format is also a module of its own, with its documentation:
`onnx_models`, `dot`, `stg`, `kineto`, `rows`, `hios`, `ios`, `hios_graph`, `native`. Modules of
PyTorch are imported from memory, by `torch_fx`; graphs of networkx by `OpGraph.from_networkx`.
"""

from workloads.formats.catalogue import (
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
