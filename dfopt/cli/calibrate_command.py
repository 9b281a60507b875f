"""The command that fits a machine's numbers to measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from dfopt.cli.common import JsonFlag, app, argument, echo, emit, errors, option
from dfopt.cli.outputs import ForceFlag, check_output


@app.command()
def calibrate(
    system: Annotated[str, option("system whose numbers are fitted: zoo name or file", "--system", metavar="SYSTEM")],
    output: Annotated[Path, option("write the calibration", "--output", "-o", metavar="FILE.yaml")],
    data: Annotated[
        list[Path] | None, argument("[DATA.csv...]", "measured training steps: tables of the forms that it reads")
    ] = None,
    kernels: Annotated[
        list[Path] | None,
        option(
            "GEMMs, attention, kernels bound by memory, optimizer steps, as measured: they fix those shares",
            metavar="KERNELS.csv",
        ),
    ] = None,
    collectives: Annotated[
        Path | None, option("measured collectives: they fix the share of a node's links", metavar="NCCL.csv")
    ] = None,
    label: Annotated[str, option("what these two call the system, or how that begins", metavar="NAME")] = "",
    fit: Annotated[str, option("numbers to fit, by commas; default: what tables leave open", metavar="NAMES")] = "",
    like: Annotated[
        Path | None,
        option("calibration of another chip, whose numbers are taken where none are fitted", metavar="FILE"),
    ] = None,
    regime: Annotated[
        Literal["sustained", "burst"],
        option("rows that are taken of kernels: at the limit of power, as in training; or after a pause"),
    ] = "sustained",
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Fit shares of a machine's rates to measured training steps; the profile keeps where they come from."""
    with errors():
        from dfopt.calibration.calibrate import calibrate as calibrated
        from dfopt.documents.calibration import Calibration
        from dfopt.library import as_system
        from dfopt.show.calibration import calibration_report

        check_output("--output", output, (".yaml", ".yml", ".json"))
        names = [name.strip() for name in fit.split(",") if name.strip()] or None

        def say(text: str) -> None:
            echo(f"dfopt: {text}", err=True)

        donor = None if like is None else Calibration.load(like)
        made = calibrated(
            data or [], as_system(system), output.stem, label, kernels or (), collectives, names, say, donor, regime
        )
        made.dump(output)
        for one in made.fitted:
            if one.at_bound:
                say(f"warning: {one.name} is on its bound: {one.value:g} of {one.least:g} to {one.most:g}")
        emit(as_json, made, lambda: calibration_report(made))
