"""Command lines drawn at random: every command that there is, with values that are mostly right.

Commands, arguments and options are those of the application itself, so that a new one is drawn as soon as it is there.
What an option wants is told by its type, its metavar and its name. Numbers that are legal are small, as nothing is
learned from a large graph; those that are not legal may be absurd.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from simsched.schedulers import SCHEDULERS


@dataclass(frozen=True)
class Parameter:
    """An argument or an option of a command."""

    names: tuple[str, ...]
    """How an option is written; empty for an argument."""
    kind: str
    """What its values are: a key of `_VALUES`, "flag", or "text"."""
    required: bool
    many: bool


@dataclass(frozen=True)
class Command:
    """A command and what it takes."""

    path: tuple[str, ...]
    parameters: tuple[Parameter, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Options that name a file which is written."""
        return tuple(name for one in self.parameters for name in one.names if one.kind in ("output", "picture"))


def commands() -> tuple[Command, ...]:
    """Return every command of the application."""
    from typer.main import get_command

    from simsched.cli.app import application

    return tuple(_walk(get_command(application()), ()))


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[Command]:
    inner: Mapping[str, Any] = getattr(command, "commands", {})
    for name, one in inner.items():
        yield from _walk(one, (*path, name))
    if not inner:
        yield Command(path, tuple(_parameter(one) for one in command.params))


def _parameter(one: Any) -> Parameter:
    names = tuple(name for name in (*one.opts, *one.secondary_opts) if name.startswith("-"))
    many = bool(getattr(one, "multiple", False) or one.nargs != 1)
    return Parameter(names, _kind(one, names), bool(one.required), many)


def _kind(one: Any, names: Sequence[str]) -> str:
    if getattr(one, "is_flag", False):
        return "flag"
    metavar = (one.metavar or "").upper()
    known = _KINDS.get(one.name) or _METAVARS.get(metavar)
    if known:
        return known
    if metavar in ("FILE", "FOLDER"):
        return "output" if names else "file"
    kind = getattr(one, "type_descriptor", None)
    text = f"{getattr(kind, 'annotation', '')} {getattr(one, 'type', '')}".lower()
    return "whole" if "int" in text else "number" if "float" in text else "text"


_KINDS: Final = {
    "gpu": "gpu", "link": "link", "schedulers": "schedulers", "scheduler": "scheduler", "option": "option",
    "shape": "shape", "backend": "backend", "backend_option": "backend option", "target": "target", "cluster": "target",
    "threads": "threads", "transfers": "transfers", "events": "events", "form": "form", "dask": "dask",
    "shard": "shard", "read_as": "format", "write_as": "format", "svg": "picture", "gantt": "picture",
    "box": "picture", "scatter": "picture", "tornado": "picture", "plot": "picture", "file": "study",
    "resume": "output", "set": "change", "sets": "change", "changes": "change", "change": "change",
    "parameter": "parameter", "parameters": "parameters", "values": "values", "parameter2": "parameter",
    "values2": "values", "plans": "plan", "sources": "result", "source": "result", "kind": "kind",
}  # fmt: skip  # by the name of the parameter
_METAVARS: Final = {
    "GRAPH": "graph", "GRAPH|PLAN": "graph", "PLAN": "plan", "PROFILE...": "profile", "SOURCE": "result",
    "SOURCE...": "result", "TARGET": "output", "FOLDER...": "folder", "PARAMETER": "parameter", "CHANGE": "change",
}  # fmt: skip

_GRAPHS: Final = (
    "graph.json", "graph.json", "one.json", "net.dot", "net.stg", "net.onnx", "net.onnx,granularity=operator",
    "net.txt,floor=0.5", "net.stg,time_unit=2", "ios.json", "random:layered,n_ops=6,n_layers=3", "random:lu,tiles=2",
    "random:fork-join,n_ops=8,seed=3", "random:in-tree,n_ops=5", "random:layered,n_ops=6,n_layers=3,time=1:2",
)  # fmt: skip
_ODD_GRAPHS: Final = (
    "random:layered,n_ops=1000000000", "random:layered,n_ops=99999999999999999999999", "random:lu,tiles=10000000",
    "random:fft,points=9999999999999", "random:nobody,n_ops=4", "random:layered,n_ops=",
    "random:layered,n_ops=6,n_ops=7", "random:layered,n_ops=0", "random:layered,n_ops=-5",
    "random:layered,n_ops=1e9", "nobody", "missing.json", "",
    "folder", "folder/", ".", "..", "/dev/null", "/dev/zero", "empty.json", "zeros.json", "deep.json", "nan.json",
    "binary.onnx", "\u00fcber.json", "a b.json", "graph.json,", "graph.json,x=1", ",", "inception_v3,batch=0",
    "inception_v3,batch=" + "9" * 400, "x" * 5000, "x" * 5000 + ".json", "random:", "random:layered,seed=\u0663",
    "tiny_inception,image_size=1000000000000", "link.json", "loop.json",
)  # fmt: skip
_PLANS: Final = ("plan.json", "plan.json", "staged.json", "program.json")
_WHOLE: Final = ("0", "1", "2", "3", "2")
_NUMBERS: Final = ("0", "0.5", "1", "2", "0.02")
_ODD_NUMBERS: Final = (
    "-1", "-0", "1.5", "1e3", "10000000000", "9" * 30, "9" * 5000, "-" + "9" * 400, "nan", "inf", "-inf", "1e999", "x",
    "", " ", "007", "1_0", "0x1", "\u0663", "1,2", "+1", "2147483648", "9223372036854775808", "1e-320", "--", "\u221e",
)  # fmt: skip
_OUTPUTS: Final = (
    "t.json", "t.json", "u.json", "folder/t.json", "t.dot", "t.stg", "t.onnx", "t.html", "./t.json", "missing/t.json",
    "graph.json", ".", "", "t", "\u00fc \u2028.json", "x" * 300, "/dev/null", "link.json", "t.json/", "-",
)  # fmt: skip
_VALUES: Final[Mapping[str, tuple[Sequence[str], Sequence[str]]]] = {
    "graph": ((*_GRAPHS, "plan.json"), (*_ODD_GRAPHS, "profile.json", "study.toml")),
    "plan": (_PLANS, (*_ODD_GRAPHS, "graph.json", "profile.json")),
    "profile": (("profile.json",), (*_ODD_GRAPHS, "graph.json", "plan.json", "t.json")),
    "file": (("graph.json", "plan.json"), _ODD_GRAPHS),
    "study": (("study.toml",), (*_ODD_GRAPHS, "odd.toml", "graph.json")),
    "folder": (("rows",), (*_ODD_GRAPHS, "missing", "rows/rows.jsonl", "measured", "torn")),
    "result": (("graph.json", "rows", "measured", "compared.json", "replay.json", *_PLANS), (*_ODD_GRAPHS, "torn")),
    "target": (("cluster.json", "calibration.json"), (*_ODD_GRAPHS, "graph.json", "profile.json")),
    "gpu": (("a100", "v100", "h100", "a40"), ("", "A100", "nobody", "a100,v100", "a100 ", "\u00e4", "0")),
    "link": (("pcie3", "nvlink3", "nvlink2"), ("rope", "", "nvlink-bridge", "network")),
    "scheduler": (tuple(SCHEDULERS), ("nobody", "", "math:pi", "os:nothing", "os:getcwd", ":", "no.mod:f", "l,")),
    "schedulers": (
        ("lios", "sequential,lios", "greedy,heft,lios", "nimble,opara", "fast"),
        ("", ",", "lios,,greedy", "nobody", "all,fast", "math:pi", "lios " * 50),
    ),
    "option": (
        ("streams=2", "window=2", "streams=1"),
        ("", "=", "x", "streams=", "streams=x", "streams=-1", "streams=" + "9" * 300, "evaluations=0", "rng=1", "a=b="),
    ),
    "backend": (("synthetic",), ("nobody", "", "cupy", "math:pi", "recorded", "torch", "a:b", "synthetic ")),
    "backend option": (
        ("gpu=a100", "gpu=v100"),
        ("gpu=", "gpu=nobody", "x=1", "", "=", "gpus=" + "9" * 30, "seed=-1", "folder=measured", "gpu=a100,v100"),
    ),
    "shape": (("x=1,3,8,8", "x=2,6,32"), ("x=0", "x", "=1", "x=1,,2", "x=" + "9" * 30, "x=-1", "x=1,3,x", "")),
    "threads": (("device", "one"), ("two", "")),
    "transfers": (("async", "blocking"), ("slow", "")),
    "events": (("minimal", "literal"), ("none", "")),
    "form": (("png", "svg"), ("pdf", "jpg", "", "PNG")),
    "format": (("simsched", "dot"), ("onnx", "kineto", "ios", "stg", "tf", "", "DOT")),
    "dask": (("none", "local local"), ("", "x", "tcp:", "::")),
    "shard": (("0/1", "1/2"), ("2/2", "0/0", "-1/2", "1", "1/", "/", "a/b", "1/" + "9" * 30, "")),
    "whole": (_WHOLE, _ODD_NUMBERS),
    "number": (_NUMBERS, _ODD_NUMBERS),
    "output": (_OUTPUTS[:4], _OUTPUTS),
    "picture": (("t.svg", "t.png", "t.pdf"), ("t.jpg", "missing/t.svg", ".", "", "graph.json", "t", ".svg", "x" * 300)),
    "change": (
        ("link.bandwidth*=2", "gpus=2", "overhead.launch=0", "device=h100", "overhead*=0.5", "operators.speed*=2",
         "link.bandwidth=600GB/s", "overhead.launch=5us", "execution=graph", "interference=0", "contention=0"),
        ("", "=", "*=", "gpus", "gpus=", "gpus=0", "gpus=-1", "gpus=" + "9" * 30, "gpus*=2", "link.bandwidth=nan",
         "link.bandwidth*=-1", "device.sms=0", "device.nobody=1", "operator..speed=2", "operators.x.speed=1e999",
         "execution=x", "rebuild.batch=2", "overhead.launch=5 parsecs", "a=b=c", "\u00e9=1", "device=" + "x" * 400),
    ),
    "parameter": (
        ("link.bandwidth", "gpus", "overhead.launch", "device.sms", "operators.speed", "overhead"),
        ("", "nobody", "link", "device.", "operator.x.speed", "operators..speed", "\u00e9", "x" * 400),
    ),
    "parameters": (("link.bandwidth,gpus", "overhead.launch"), ("", ",", "nobody", "gpus,,gpus")),
    "values": (
        ("1,2", "0.5,1,2", "1:4", "1:2:1", "1"),
        ("", ",", "x", "1,,2", "nan", "1e999", "1:1e12:1", "0:1:0", "9" * 400, "-1", "1:", ":"),
    ),
    "kind": (("workloads", "gpus", "formats", "backends"), ("", "links", "GPUS", "schedulers")),
    "text": (("a", "1", "t.json", "1,2"), ("", "x" * 400, "\u00e9", "%s{}", "-", "--", "\u2028")),
}  # fmt: skip
_CHEAP: Final = {
    "validate": {"--schedulers": "sequential,lios", "--rounds": "1", "--training": "1", "--held-out": "1",
                 "--repeats": "2", "--warmup": "0"},
    "profile": {"--in-situ": "1"},
    "replay": {"--repeats": "2", "--warmup": "0"},
}  # fmt: skip  # what would take seconds otherwise
_JUNK: Final = (
    "-", "--", "", " ", "-h", "--help", "--version", "-o", "--output", "--json", "-x", "--nobody", "---", "--gpu=", "=",
    "compare", "study", "graph.json", "\u00e9\U0001f600", "\u2013\u2013gpu", "-1", "9" * 400, "a\nb", "\t", "%s",
    "$HOME", "*", "../x", "~", "\x1b[31m", "\u202e", "x" * 2000, "--graph", "[/x]", "[red]",
)  # fmt: skip


def draw(known: Sequence[Command], files: Sequence[str], rng: Random) -> tuple[list[str], Command | None]:
    """Return a command line and the command that it is of, or None if it is of words alone.

    Parameters
    ----------
    known
        The commands.
    files
        More files that may be given where one is read.
    rng
        What draws.
    """
    if rng.random() < 0.04:
        return [rng.choice((*_JUNK, *known[0].path)) for _ in range(rng.randrange(4))], None
    command = rng.choice(known)
    words = list(command.path)
    options: list[list[str]] = []
    for one in command.parameters:
        if one.names:
            if rng.random() < (0.95 if one.required else 0.2):
                options += [_option(one, files, rng) for _ in range(rng.choice((1, 1, 1, 2)) if one.many else 1)]
        elif rng.random() < 0.97:
            n = rng.choice((1, 1, 1, 2, 3)) if one.many else 1
            options += [[_value(one.kind, files, rng)] for _ in range(n)]
    rng.shuffle(options)
    given = {word.partition("=")[0] for words in options for word in words}
    for name, value in _CHEAP.get(command.path[-1], {}).items():
        if name not in given:
            options.append([name, value])
    words += [word for option in options for word in option]
    for _ in range(rng.choice((0, 0, 0, 0, 0, 0, 0, 1, 1, 2))):
        words = _spoilt(words, rng) if words else words
    return words, command


def _option(one: Parameter, files: Sequence[str], rng: Random) -> list[str]:
    name = rng.choice(one.names)
    if one.kind == "flag":
        return [name]
    value = _value(one.kind, files, rng)
    return [f"{name}={value}"] if name.startswith("--") and rng.random() < 0.15 else [name, value]


def _value(kind: str, files: Sequence[str], rng: Random) -> str:
    usual, odd = _VALUES[kind]
    if files and kind in ("graph", "plan", "result", "target", "file", "folder") and rng.random() < 0.2:
        return rng.choice(files)
    return rng.choice(usual if rng.random() < 0.9 else odd)


def _spoilt(words: list[str], rng: Random) -> list[str]:
    """Return a command line with a word left out, put in, doubled, cut, swapped or turned to capitals."""
    at, other = rng.randrange(len(words)), rng.randrange(len(words))
    word = words[at]
    change = rng.randrange(7)
    if change == 0:
        return words[:at] + words[at + 1 :]
    if change == 1:
        return [*words[:at], rng.choice(_JUNK), *words[at:]]
    if change == 2:
        return words[: at + 1] + words[at:]
    if change == 3:
        return [*words[:at], word[: rng.randrange(len(word) + 1)], *words[at + 1 :]]
    if change == 4:
        words = list(words)
        words[at], words[other] = words[other], word
        return words
    if change == 5:
        return [*words[:at], word.upper(), *words[at + 1 :]]
    return [*words[:at], word + rng.choice(_JUNK), *words[at + 1 :]]
