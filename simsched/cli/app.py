"""The application: which commands there are. Each imports what it needs when it runs, so that ``--help`` is quick."""

from typing import Annotated

import typer

from simsched.cli import asking, commands, looking, measuring, reporting, studying

app = typer.Typer(
    name="simsched",
    help="Schedule the operators of a deep-learning model on one or several GPUs, in simulation first.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    commands.compare,
    commands.schedule,
    commands.simulate,
    asking.whatif,
    asking.sweep,
    asking.sensitivity,
    asking.explain,
    asking.breakeven,
    asking.robust,
    asking.throughput,
    reporting.report,
    measuring.backends,
    measuring.profile,
    measuring.calibrate,
    measuring.replay,
    measuring.validate,
    looking.show,
    looking.convert,
    looking.workloads,
    looking.formats,
    looking.gpus,
):
    app.command()(_command)
app.add_typer(studying.study)


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        import simsched

        print(f"simsched {simsched.__version__}")
        raise typer.Exit
