"""Commands that go to other people's tools and back: export, and import of Megatron-LM's arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dfopt.cli.common import TimeLimitOpt, app, argument, echo, errors, importer, option
from dfopt.cli.outputs import ForceFlag, check_folder

FolderOpt = Annotated[Path, option("folder for the files", "-o", "--output", metavar="DIR")]


@app.command()
def export(
    tool: Annotated[str, argument("TOOL", "megatron, deepspeed, torchtitan or nemo")],
    result: Annotated[Path, argument("RESULT", "a result document of a training step")],
    output: FolderOpt,
    force: ForceFlag = False,
) -> None:
    """Write the mapping of RESULT as the arguments of TOOL, and list every decision that it cannot express."""
    with errors():
        from dfopt.exports.folder import files_of, write_export

        check_folder("--output", output, files_of(tool))
        for line in write_export(tool, result, output):
            echo(line)


@importer.command("megatron")
def import_megatron(
    arguments: Annotated[Path, argument("ARGS", "options of Megatron-LM: shell words, or as YAML")],
    output: FolderOpt,
    result: Annotated[
        Path | None, option("the result they were exported from: its mapping is judged", metavar="RESULT")
    ] = None,
    force: ForceFlag = False,
    time_limit: TimeLimitOpt = 60.0,
) -> None:
    """Import arguments of Megatron-LM: writes graph.yaml, pins.yaml and the command to solve it.

    Kernels are pinned to Megatron-LM's shardings; what else the arguments do not say is searched. With --result, the
    arguments must be those of its export, and its mapping is written with the command to judge it.
    """
    with errors(time_limit=time_limit):
        check_folder(
            "--output", output, (f"{name}.yaml" for name in ("graph", "pins", "mapping", "system", "assumptions"))
        )
        if result is not None:
            from dfopt.exports.folder import write_again

            lines = write_again(arguments, result, output)
        else:
            from dfopt.frontends.megatron import write_run

            lines = write_run(arguments, output)
        for line in lines:
            echo(line)
