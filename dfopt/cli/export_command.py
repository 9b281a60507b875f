"""Commands that go to other people's tools and back: export, and import of Megatron-LM's arguments."""

from __future__ import annotations

from pathlib import Path

from dfopt.cli.common import app, echo, errors, importer
from dfopt.cli.outputs import check_folder


@app.command()
def export(tool: str, result: Path, out_dir: Path, force: bool = False) -> None:
    """Write the mapping of a training step as the arguments of a tool, and list what the tool cannot express.

    Arguments:
        tool (TOOL): One of megatron, deepspeed, torchtitan and nemo.
        result (RESULT): Result of a training step.

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
    arguments: Path, out_dir: Path, result: Path | None = None, force: bool = False, time_limit: float = 60.0
) -> None:
    """Import arguments of Megatron-LM: write graph.yaml, pins.yaml and the command to solve it.

    Kernels are pinned to the shardings of Megatron-LM; dfopt searches what the arguments leave open. With --result, the
    arguments must be those of its export, and its mapping is written with the command to judge it.

    Arguments:
        arguments (ARGS): Options of Megatron-LM, as shell words or YAML.

    Options:
        result (RESULT): Result from which these options were exported; its mapping is judged.

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
            from dfopt.frontends.megatron.training_run import write_run

            lines = write_run(arguments, out_dir)
        for line in lines:
            echo(line)
