"""The command that fits a machine's numbers to measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from dfopt.cli.common import app, echo, emit, errors
from dfopt.cli.outputs import check_output


@app.command()
def calibrate(
    system: str, output: Path, data: list[Path] | None = None, kernels: list[Path] | None = None,
    collectives: Path | None = None, label: str = "", fit: str = "", like: Path | None = None,
    regime: Literal["sustained", "burst"] = "sustained", force: bool = False, as_json: bool = False,
) -> None:  # fmt: skip
    """Fit the shares of its peak rates that a machine reaches to measured training steps.

    Arguments:
        data (DATA.csv): Tables of measured training steps.

    Options:
        system (SYSTEM): System whose rates are fitted: zoo name or file, such as h100-8.
        kernels (KERNELS.csv): Table of measured kernels (GEMMs, attention, optimizer steps), which fix their shares.
        collectives (NCCL.csv): Table of measured collectives, which fix the share of the links of a node.
        label (NAME): Name of the system in both tables, or how it begins, such as H100.
        fit (NAMES): Numbers to fit, such as compute,links; default: all that the tables leave open.
        like (FILE): Calibration of another chip, which gives the numbers that are not fitted.
        regime: Rows of kernels to use: at the power limit as in training, or after a pause; default: sustained.

    Output:
        output (-o FILE.yaml): File for the calibration, such as mine.yaml.

    Examples:
        dfopt calibrate steps.csv --system h100-8 -o mine.yaml
        dfopt calibrate steps.csv --system h100-8 --kernels gemms.csv -o mine.yaml
        dfopt solve llama-3.1-8b h100-8 --phase training --assume mine.yaml
    """
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
        calibration = calibrated(
            data or [], as_system(system), output.stem, label, kernels or (), collectives, names, say, donor, regime
        )
        calibration.dump(output)
        for fitted in calibration.fitted:
            if fitted.at_bound:
                say(f"warning: {fitted.name} is on its bound: {fitted.value:g} of {fitted.least:g} to {fitted.most:g}")
        emit(as_json, calibration, lambda: calibration_report(calibration))
