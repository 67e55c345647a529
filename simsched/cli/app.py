"""The application: which commands there are. Each imports what it needs when it runs, so that ``--help`` is quick."""

from importlib import import_module
from typing import Annotated, Final

import typer

from simsched.cli.options import expanded

_HOME: Final = {
    "schedule": ("compare", "schedule", "simulate", "check"),
    "ask": ("advise", "whatif", "sweep", "sensitivity", "explain", "breakeven", "robust", "throughput"),
    "report": ("report",),
    "measure": ("profile", "calibrate", "replay", "validate", "replay-trace"),
    "graph": ("show", "convert"),
    "listing": ("list",),
    "study": ("study",),
}  # module of simsched.cli -> its commands


def application(command: str | None = None) -> typer.Typer:
    """Return the application, with one command alone if it is one of ours: it takes a while to set all of them up."""
    app = typer.Typer(
        name="simsched",
        help="Schedule the operators of a deep-learning model on one or several GPUs, in simulation first.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_top)
    known = {name: module for module, names in _HOME.items() for name in names}
    for name in [command] if command in known else known:
        module = import_module(f"simsched.cli.{known[name]}")
        found = module.list_ if name == "list" else getattr(module, name.replace("-", "_"))
        if isinstance(found, typer.Typer):
            app.add_typer(found)
        else:
            app.command(name)(expanded(found))
    return app


def _top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        import simsched

        print(f"simsched {simsched.__version__}")
        raise typer.Exit
