"""`Program` to and from JSON documents."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from simsched.base.errors import ProgramError
from simsched.base.io import Record, document
from simsched.base.numeric import LARGEST_COUNT
from simsched.model.graph import OpGraph
from simsched.model.graph.columns import Floats
from simsched.model.program import ACTIONS, Copies, Instruction, Program, launch_ptr
from simsched.model.schedule import EXECUTIONS

FORMAT, VERSION = "simsched.program", 1
_LARGEST = 2**31 - 1


def to_dict(program: Program) -> dict[str, Any]:
    """See `Program.to_dict`."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "execution": program.execution,
        "devices": list(program.devices),
        "events": program.n_events,
        "graph": program.graph.to_dict(),
        "threads": [[_instruction_to_dict(program, row) for row in thread] for thread in program.threads],
    }


def _instruction_to_dict(program: Program, row: Instruction) -> dict[str, Any]:
    found: dict[str, Any] = {"do": row.action, "device": row.device}
    if row.stream >= 0:
        found["stream"] = row.stream
    if row.action == "launch":
        op = program.launch_op[row.argument]
        found["op"] = program.graph.names[op]
        found["kernel"] = int(program.launch_kernel[row.argument])
        found["priority"] = int(program.priority[op])
    elif row.action == "copy":
        copies = program.copies
        exact = copies.transfer[row.argument]
        found["op"] = program.graph.names[copies.op[row.argument]]
        found["to"] = program.devices[copies.device[row.argument]]
        found["nbytes"] = float(copies.nbytes[row.argument])
        found["transfer"] = None if np.isnan(exact) else float(exact)
    elif row.action != "barrier":
        found["event"] = row.argument
    if row.lead:
        found["lead"] = row.lead
    if row.own is not None:
        found["own"] = row.own
    return found


def from_dict(data: Any, source: str) -> Program:
    """See `Program.from_dict`."""
    top = document(data, FORMAT, VERSION, source)
    graph = OpGraph.from_dict(top.take("graph", dict), f"{source}: graph")
    devices = top.take("devices", list)
    execution = top.take("execution", str)
    n_events = top.take("events", int)
    threads = top.take("threads", list)
    top.done()
    if execution not in EXECUTIONS:
        raise ProgramError(f"{source}: unknown execution {execution!r}; known are: {', '.join(EXECUTIONS)}")
    if execution == "graph" and len(threads) != 1:
        raise ProgramError(f"{source}: a captured graph has one thread, not {len(threads)}")
    if not devices or not all(isinstance(name, str) for name in devices) or not 0 <= n_events <= LARGEST_COUNT:
        raise ProgramError(f"{source}: 'devices' must be a list of names and 'events' a count")
    if len(set(devices)) != len(devices):
        raise ProgramError(f"{source}: device {next(d for d in devices if devices.count(d) > 1)!r} stands twice")
    reader = _InstructionReader(graph, {name: i for i, name in enumerate(devices)})
    ptr = [0]
    for t, thread in enumerate(threads):
        if not isinstance(thread, list):
            raise ProgramError(f"{source}: threads[{t}] must be a list")
        for i, row in enumerate(thread):
            reader.read(Record(row, f"{source}: threads[{t}][{i}]"))
        ptr.append(len(reader.rows))
    action, device, stream, argument = np.array(reader.rows, np.int64).reshape(-1, 4).T
    try:
        return Program(
            graph, devices, execution, ptr, action, device, stream, argument,
            copies=reader.copy_columns(), n_events=n_events, priority=reader.priority, **reader.host_times(),
        ).check()  # fmt: skip
    except ProgramError as error:
        raise ProgramError(f"{source}: {error}") from None


class _InstructionReader:
    """Collects instruction rows (action, device, stream, argument) and copies."""

    def __init__(self, graph: OpGraph, devices: Mapping[str, int]) -> None:
        self._graph = graph
        self._devices = devices
        self._ptr = launch_ptr(graph)
        self.priority = np.zeros(len(graph), np.int64)
        self.rows: list[tuple[int, int, int, int]] = []
        self.copies: list[tuple[int, int, float, float]] = []
        self._hosts: list[tuple[float, float]] = []

    def read(self, row: Record) -> None:
        action = row.take("do", str)
        if action not in ACTIONS:
            raise ProgramError(f"{row.where}: unknown instruction {action!r}; known are: {', '.join(ACTIONS)}")
        device = self._device(row, "device")
        stream = row.take("stream", int, -1)
        needs_stream = action not in ("barrier", "sync")
        if needs_stream != (0 <= stream < 2**31):
            raise ProgramError(f"{row.where}: {action} {'needs' if needs_stream else 'takes no'} stream")
        argument = -1
        if action == "launch":
            op, kernel = self._op(row), row.take("kernel", int, 0)
            if not 0 <= kernel < self._ptr[op + 1] - self._ptr[op]:
                raise ProgramError(f"{row.where}: operator {self._graph.names[op]!r} has no kernel {kernel}")
            argument = int(self._ptr[op]) + kernel
            self.priority[op] = _small(row, "priority", 0)
        elif action == "copy":
            argument = len(self.copies)
            to, nbytes, exact = self._device(row, "to"), row.take("nbytes", float), row.take("transfer", float, None)
            if to == device or not 0 <= nbytes < np.inf or not (exact is None or 0 <= exact < np.inf):
                raise ProgramError(
                    f"{row.where}: a copy goes to another device and takes no negative or infinite amount"
                )
            self.copies.append((self._op(row), to, nbytes, np.nan if exact is None else exact))
        elif action != "barrier":
            argument = _small(row, "event")
        own = row.take("own", float, None)
        self._hosts.append((row.take("lead", float, 0.0), np.nan if own is None else own))
        row.done()
        self.rows.append((ACTIONS.index(action), device, stream, argument))

    def host_times(self) -> dict[str, Floats]:
        """Return the host times read so far, by columns, if there are any."""
        lead, own = np.array(self._hosts, np.float64).reshape(-1, 2).T
        return ({"lead": lead} if lead.any() else {}) | ({} if np.isnan(own).all() else {"own": own})

    def copy_columns(self) -> Copies:
        """Return the copies read so far, by columns."""
        op, device, nbytes, transfer = zip(*self.copies, strict=True) if self.copies else ((), (), (), ())
        return Copies(
            np.array(op, np.int32),
            np.array(device, np.int32),
            np.array(nbytes, np.float64),
            np.array(transfer, np.float64),
        )

    def _device(self, row: Record, key: str) -> int:
        name = row.take(key, str)
        if name not in self._devices:
            raise ProgramError(f"{row.where}: unknown device {name!r}; known are: {', '.join(self._devices)}")
        return self._devices[name]

    def _op(self, row: Record) -> int:
        name = row.take("op", str)
        if name not in self._graph.index:
            raise ProgramError(f"{row.where}: {name!r} names no operator of graph {self._graph.name!r}")
        return self._graph.index[name]


def _small(row: Record, key: str, *default: int) -> int:
    value: int = row.take(key, int, *default)
    if abs(value) > _LARGEST:
        raise ProgramError(f"{row.where}: {key} {value} is beyond 2^31")
    return value
