"""Commands of `simsched contact`, which measure a device in minutes."""

from typing import Annotated

import typer

from simsched.cli import options as opt
from simsched.cli import printing as out
from simsched.cli.options import IncompleteError, Text, argument, file_option, option, read_name, read_options

contact = typer.Typer(
    name="contact", help="Measure a device in minutes; judge predictions by it.", no_args_is_help=True
)

Folder = Annotated[str, argument("FOLDER", "Folder of the measurements.")]


@contact.command()
def run(
    folder: Folder,
    backend: Annotated[
        str, option("Name, see `simsched list backends`; or fake, for a trial without a device.")
    ] = "cupy",
    backend_option: opt.BackendOption = None,
    seconds: Annotated[float, option("Time in all; what is worth least is left out.", min=0.001)] = 480.0,
    size: Annotated[str, option("full, or small for a trial of everything.")] = "full",
    patience: Annotated[float, option("Seconds without an answer after which an item hangs.", min=0.001)] = 60.0,
) -> None:
    """Measure a device, section by section, most important first; again with the same FOLDER to go on."""
    from hwbackend.contact.commands import measure

    options = read_options(backend_option, "--backend-option")
    lines = measure(
        folder,
        read_name(backend),
        options,
        seconds=seconds,
        size=size,
        patience=patience,
        tell=lambda line: out.say(line),
    )
    for line in lines:
        out.say(line)


@contact.command()
def analyse(
    folder: Folder,
    beside: Annotated[
        Text,
        option("Kept measurement whose figures stand beside; by default those that FOLDER keeps.", metavar="FOLDER"),
    ] = None,
    operators: Annotated[
        int | None, option("Most operators of a graph that is predicted: larger ones take minutes.", min=1)
    ] = None,
    output: Annotated[
        Text, file_option("Write the figures to a JSON file; FOLDER/contact.json keeps them.", "--output", "-o")
    ] = None,
) -> None:
    """Fit the simulator to measurements, predict what was held out, and print one page.

    Ends with 1 if an error is more than a quarter above the kept one.
    """
    from hwbackend.contact.commands import judge

    analysis, status = judge(folder, beside=beside, operators=operators, output=output)
    out.say(*analysis.lines())
    if status:
        raise IncompleteError(f"{len(analysis.worse())} figures are worse than the kept ones")
