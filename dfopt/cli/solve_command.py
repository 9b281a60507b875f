"""``dfopt solve``: the fastest mapping of a graph onto a system."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dfopt import arguments
from dfopt.cli.common import app, detail_of, echo, emit, end_by, errors, importing
from dfopt.cli.outputs import check_output
from dfopt.cli.question_options import split_options, with_question_options
from dfopt.errors import Infeasible, PlanError
from dfopt.interrupts import process_start, shielded

if TYPE_CHECKING:
    from dfopt.documents.mapping import Pins
    from dfopt.documents.result import Result


def _fields(fixed: Pins, fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of the request: those of a file, and those of options, which go first."""
    for name, of_file in (("pin", fixed.partition), ("shard", fixed.sharding)):
        if of_file:
            fields[name] = {**of_file, **fields.get(name, {})}
    return arguments.given({**fixed.on_axes, "p_max": fixed.p_max}) | fields


def _dump(result: Result, path: Path) -> None:
    """Write the models of an answer, a file each."""
    from dfopt.search.dump import dump_models

    for written in dump_models(result, path):
        echo(f"dfopt: wrote {written}", err=True)


def solve(
    graph: str | None = None, system: str | None = None, param: list[str] | None = None, assume: str | None = None,
    set_: list[str] | None = None, like: Path | None = None, chips: int | None = None, nodes: int | None = None,
    memory_reserve: str | None = None, kernel_by_kernel: bool = False, pins: Path | None = None,
    stack: str | None = None, require_proof: bool = False, sensitivity: bool = True, output: Path | None = None,
    dump: Path | None = None, detail: str | None = None, quiet: bool = False, force: bool = False,
    as_json: bool = False, **options: Any,
) -> None:  # fmt: skip
    """Find the fastest mapping of GRAPH onto SYSTEM, and prove it.

    Name a workload and a machine, or a file that has the question. What you do not fix, dfopt chooses.

    Arguments:
        graph (GRAPH|QUESTION): Workload: a zoo name, a file, or a question alone.
        system (SYSTEM): Machine: a zoo name, NAME:CHIPS such as h100:64, or a file.

    Workload and model:
        {workload}
        param (KEY=VALUE): Parameter of the workload, such as layers=4; may be repeated.
        like (RESULT): Ask the question of an earlier result again, with the other options changed.

    Machine:
        chips (--chips --gpus N 1..): Number of chips of SYSTEM instead of its own, such as 64.
        nodes (N 1..): Number of nodes of SYSTEM instead of its own, such as 8.
        memory_reserve (PART)

    Parallelism:
        {parallelism}

    Search:
        gap (GAP)
        time_limit (S 0.1..): Seconds for the whole command, such as 300; default: 60.
        require_proof (--require-proof): Exit with status 8 if the gap stays above --gap.
        top (K 1..)
        distinct (plan|sharding)
        sensitivity
        offload (optimizer|weights|activations|gradients[,...]|any)
        formulation (auto|assignment|columns)
        solver (highs|pulp:NAME)
        seed (N 0..)

    Fixed by hand:
        shard (KERNEL=SCHEME): Sharding of a kernel, such as FFN0=m; may be repeated.
        pin (KERNEL=PARTITION): Partition of a kernel, such as FFN0=2; may be repeated.
        place (ITEM=MEMORY): Memory of a kind of data, such as experts=DDR; may be repeated.
        pins (FILE): File with everything that you fix by hand.
        p_max (N 1..)
        kernel_by_kernel (--kernel-by-kernel): Run every kernel by itself, without fusion.

    Heat:
        heat (ignore|aware)

    Output:
        output (-o FILE.json): File for the result, such as best.json.
        dump (FILE.mps|FILE.lp): File for the MILPs of the best plan, such as best.lp.

    Examples:
        dfopt solve llama-3.1-70b h100-8 --phase decode --batch 16 --context 4096
        dfopt solve gpt3-175b a100-512 --phase training --gap 1% -o best.json
        dfopt solve my-model/config.json h100:64 --phase prefill --isl 4096 --tp 8
    """
    with shielded(final=True), errors(" before the first mapping was found"):
        with importing():
            from dfopt.cli.asking import asked_of, report_of
            from dfopt.documents.mapping import Pins
            from dfopt.search import answer
            from dfopt.show.progress import ProgressLine
            from dfopt.show.refusals import brief

        sections = detail_of(detail)
        check_output("--output", output, (".json", ".yaml", ".yml"))  # before the work, not after it
        check_output("--dump", dump, (".mps", ".lp"), parts=True)
        options = arguments.given({**options, "sensitivity": sensitivity})
        if kernel_by_kernel and (clash := [name for name in ("pin", "p_max") if name in options]):
            given = f"--{clash[0].replace('_', '-')}"
            raise PlanError(f"{given}: with --kernel-by-kernel every kernel has a partition of its own; leave one out")
        served, fields = split_options(options)
        fixed = Pins.load(pins) if pins is not None else Pins()
        kept = None if memory_reserve is None else arguments.ratio("--memory-reserve", memory_reserve)
        changes = {"execution": "kernel_by_kernel" if kernel_by_kernel else None, "memory_reserve": kept}
        question = asked_of(graph, system, like).changed(
            parameters=arguments.values(param, "--param") | served,
            set=arguments.values(set_, "--set") | arguments.given(changes),
            stack=stack, chips=chips, nodes=nodes, assumptions=assume, options=_fields(fixed, fields),
        )  # fmt: skip
        try:
            with closing(ProgressLine(quiet=quiet)) as line:
                solved = answer(question, progress=line, began=process_start())
        except Infeasible as error:
            raise error if as_json else Infeasible(brief(str(error.report)), error.least, error.fixed) from None
        result = solved.result
        for note in solved.notes:
            echo(f"dfopt: {note}", err=True)
        files = (output, result.dump), (dump, partial(_dump, result))
        emit(as_json, result, lambda: report_of(solved, sections), 140 if sections else 80, files)
        near = result.gap <= result.request.gap * (1 + 1e-9) and not result.status.endswith("_with_solution")
        end_by([result.score], near or not require_proof)


app.command()(with_question_options(solve))
