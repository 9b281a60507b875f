"""Commands that go to other people's tools and back: export, and import of Megatron-LM's arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dfopt.cli.common import TimeLimitOpt, app, argument, echo, errors, importer, option
from dfopt.cli.outputs import ForceFlag, OutDirOpt, check_folder


@app.command()
def export(
    tool: Annotated[str, argument("TOOL", "One of megatron, deepspeed, torchtitan and nemo.")],
    result: Annotated[Path, argument("RESULT", "Result of a training step.")],
    out_dir: OutDirOpt,
    force: ForceFlag = False,
) -> None:
    """Write the mapping of a training step as the arguments of a tool, and list what the tool cannot express.

    Examples:
        dfopt export megatron best.json --out-dir run
        dfopt export torchtitan best.json --out-dir run
        dfopt export deepspeed best.json --out-dir run --force
    """
    with errors():
        from dfopt.exports.folder import files_of, write_export

        check_folder("--out-dir", out_dir, files_of(tool))
        for line in write_export(tool, result, out_dir):
            echo(line)


@importer.command("megatron")
def import_megatron(
    arguments: Annotated[Path, argument("ARGS", "Options of Megatron-LM, as shell words or YAML.")],
    out_dir: OutDirOpt,
    result: Annotated[
        Path | None, option("Result from which these options were exported; its mapping is judged.", metavar="RESULT")
    ] = None,
    force: ForceFlag = False,
    time_limit: TimeLimitOpt = 60.0,
) -> None:
    """Import arguments of Megatron-LM: write graph.yaml, pins.yaml and the command to solve it.

    Kernels are pinned to the shardings of Megatron-LM; dfopt searches what the arguments leave open. With --result, the
    arguments must be those of its export, and its mapping is written with the command to judge it.

    Examples:
        dfopt import megatron args.sh --out-dir run
    """
    with errors(time_limit=time_limit):
        check_folder(
            "--out-dir", out_dir, (f"{name}.yaml" for name in ("graph", "pins", "mapping", "system", "assumptions"))
        )
        if result is not None:
            from dfopt.exports.folder import write_again

            lines = write_again(arguments, result, out_dir)
        else:
            from dfopt.frontends.megatron import write_run

            lines = write_run(arguments, out_dir)
        for line in lines:
            echo(line)
