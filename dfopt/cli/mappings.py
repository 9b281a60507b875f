"""Commands about mappings: solve finds one, score judges one, heat and compare put several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dfopt import __version__, arguments
from dfopt.cli.common import (
    WORKLOAD,
    AssumeOpt,
    DetailOpt,
    GradientOverlapOpt,
    Grouped,
    JsonFlag,
    OffloadOpt,
    ParameterOverlapOpt,
    ParamOpt,
    PlaceOpt,
    SendingOverlapOpt,
    SetOpt,
    TensorOverlapOpt,
    TimeLimitOpt,
    app,
    argument,
    detail_of,
    echo,
    emit,
    errors,
    option,
    under,
)
from dfopt.cli.outputs import ForceFlag, check_output
from dfopt.documents.axes import keys, spelled_out
from dfopt.errors import PlanError
from dfopt.interrupts import process_start, seconds_left, shielded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dfopt.documents.result import Result
    from dfopt.documents.score import Score

MACHINE = "Machine"
PARALLEL, BY_HAND, SEARCH, HEAT, OUTPUT = "Parallelism", "Fixed by hand", "Search", "Heat", "Output"
StackOpt = Annotated[
    str | None, under(HEAT, "judge it on a stack of dies: zoo name or file", "--stack", metavar="STACK")
]
LIMIT_BROKEN = 7
"""Exit status when a stack of dies is too hot, draws too much power, or is too small."""
UNPROVEN = 8
"""Exit status of an answer whose gap is above what was asked for, where a proof is required."""


def _write(result: Result, output: Path | None, dump: Path | None) -> None:
    """The files of an answer that were asked for."""
    from dfopt.search import dump_models

    if output is not None:
        result.dump(output)
    for written in [] if dump is None else dump_models(result, dump):
        echo(f"dfopt: wrote {written}", err=True)


def end_by(scores: Sequence[Score], proven: bool = True) -> None:
    """End a command that has told its answer: with a status of its own for broken limits and for a missing proof."""
    if any(score.physical is not None and score.physical.violations for score in scores):
        raise typer.Exit(LIMIT_BROKEN)
    if not proven:
        raise typer.Exit(UNPROVEN)


def _axis_option(dims: bool) -> Any:
    if dims:
        return Annotated[str | None, under(PARALLEL, "", metavar="DIM[,DIM...]")]
    return Annotated[int | None, under(PARALLEL, "", min=1)]


@app.command(cls=Grouped)
@spelled_out({key: (_axis_option(dims), None) for key, (_, dims) in keys().items()}, "interleave")
def solve(
    graph: Annotated[str | None, argument("[GRAPH|QUESTION]", "zoo name or file; or a question, alone")] = None,
    system: Annotated[str | None, argument("[SYSTEM]", "zoo name or file, also of a design")] = None,
    like: Annotated[
        Path | None,
        under(WORKLOAD, "ask again what a result answers, with the changes that other options say", metavar="RESULT"),
    ] = None,
    chips: Annotated[
        int | None,
        under(MACHINE, "number of chips of SYSTEM instead of its own; as in h100:64", "--chips", "--gpus", min=1),
    ] = None,
    nodes: Annotated[int | None, under(MACHINE, "number of nodes of SYSTEM instead of its own", min=1)] = None,
    memory_reserve: Annotated[
        str | None,
        under(MACHINE, "", metavar="PART"),
    ] = None,
    stack: StackOpt = None,
    heat: Annotated[
        str | None,
        under(
            HEAT,
            "",
            metavar="ignore|aware",
        ),
    ] = None,
    interleave: Annotated[int | None, under(PARALLEL, "", min=1)] = None,
    first_layers: Annotated[int | None, under(PARALLEL, "", min=0)] = None,
    last_layers: Annotated[int | None, under(PARALLEL, "", min=0)] = None,
    schedule: Annotated[str | None, under(PARALLEL, "", metavar="1f1b|interleaved|gpipe")] = None,
    ep: Annotated[int | None, under(PARALLEL, "", min=1)] = None,
    cp: Annotated[int | None, under(PARALLEL, "", min=1)] = None,
    attention_dp: Annotated[int | None, under(PARALLEL, "", min=1)] = None,
    two_batch_overlap: Annotated[
        bool | None,
        under(PARALLEL, ""),
    ] = None,
    tp_comm_overlap: TensorOverlapOpt = None,
    gradient_overlap: GradientOverlapOpt = None,
    param_gather_overlap: ParameterOverlapOpt = None,
    p2p_overlap: SendingOverlapOpt = None,
    zero: Annotated[
        str | None,
        under(
            PARALLEL,
            "",
            metavar="0|1|2|3[,...]|all",
        ),
    ] = None,
    zero_replicas: Annotated[
        str | None,
        under(PARALLEL, "", metavar="N[,N...]|all"),
    ] = None,
    module: Annotated[
        list[str] | None,
        under(PARALLEL, "fix a module's scheme over the mp chips", metavar="MODULE=n|outer|m|context|none"),
    ] = None,
    batch: Annotated[
        str | None, under(WORKLOAD, "samples per step; max: the largest that fits", metavar="N|max")
    ] = None,
    microbatch: Annotated[
        str | None,
        under(WORKLOAD, "samples in one evaluation; unless said, of several the best is found", metavar="N[,N...]|all"),
    ] = None,
    recompute: Annotated[
        str | None,
        under(
            WORKLOAD,
            "training: what is computed again, not kept: attention, full, ...; unless said, the best is found",
            metavar="none|NAME[+NAME...][/OTHERS][,...]|all",
        ),
    ] = None,
    recompute_layers: Annotated[
        int | None, under(WORKLOAD, "of --recompute SOME/OTHERS: layers of a stage; tried unless said", min=1)
    ] = None,
    phase: Annotated[
        str | None,
        under(
            WORKLOAD,
            "forward: a pass over whole samples; training: a step; the others serve",
            metavar="forward|training|prefill|decode|verify|mixed",
        ),
    ] = None,
    context: Annotated[
        int | None, under(WORKLOAD, "decode, verify: cached tokens of each sequence; default: parameter seq", min=0)
    ] = None,
    window: Annotated[int | None, under(WORKLOAD, "verify: draft tokens (parameter draft)", min=0)] = None,
    tree: Annotated[
        str | None,
        under(WORKLOAD, "verify: depth of each token of a draft tree, such as 0,1,1,2", metavar="0,1[,N...]"),
    ] = None,
    segments: Annotated[
        str | None,
        under(
            WORKLOAD,
            "mixed: groups of sequences as SEQUENCESxNEW@CACHED, such as 1x512@0,16x1@4096",
            metavar="SxN@C[,SxN@C...]",
        ),
    ] = None,
    prompt: Annotated[int | None, under(WORKLOAD, "tokens of a prompt (parameter seq)", min=1)] = None,
    hit: Annotated[int | None, under(WORKLOAD, "prefill: tokens of the prompt that are cached already", min=0)] = None,
    param: ParamOpt = None,
    assume: AssumeOpt = None,
    set_: SetOpt = None,
    p_max: Annotated[int | None, under(BY_HAND, "", min=1)] = None,
    formulation: Annotated[str | None, under(SEARCH, "", metavar="auto|assignment|columns")] = None,
    kernel_by_kernel: Annotated[
        bool, under(BY_HAND, "no fusion: a partition per kernel", "--kernel-by-kernel")
    ] = False,
    place: PlaceOpt = None,
    offload: OffloadOpt = None,
    pin: Annotated[list[str] | None, under(BY_HAND, "fix a kernel's partition", metavar="KERNEL=PARTITION")] = None,
    shard: Annotated[list[str] | None, under(BY_HAND, "fix a kernel's sharding", metavar="KERNEL=SCHEME")] = None,
    pins: Annotated[Path | None, under(BY_HAND, "a document of all that is fixed by hand", metavar="FILE")] = None,
    time_limit: Annotated[float | None, under(SEARCH, "seconds for everything; default: 60", min=0.1)] = None,
    gap: Annotated[
        str | None,
        under(SEARCH, "", metavar="GAP"),
    ] = None,
    require_proof: Annotated[
        bool, under(SEARCH, "exit status 8 where the gap stays above --gap", "--require-proof")
    ] = False,
    seed: Annotated[int | None, under(SEARCH, "", min=0)] = None,
    solver: Annotated[str | None, under(SEARCH, "", metavar="highs|pulp:NAME")] = None,
    dump: Annotated[Path | None, under(OUTPUT, "write the MILPs of the best plan", metavar="FILE.mps|FILE.lp")] = None,
    top: Annotated[int | None, under(SEARCH, "", metavar="K", min=1)] = None,
    distinct: Annotated[str | None, under(SEARCH, "", metavar="plan|sharding")] = None,
    sensitivity: Annotated[bool, under(SEARCH, "")] = True,
    output: Annotated[Path | None, under(OUTPUT, "write the result document", "-o", "--output")] = None,
    detail: DetailOpt = None,
    quiet: Annotated[bool, under(OUTPUT, "no progress on stderr", "-q", "--quiet")] = False,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
    **axes: Any,
) -> None:
    """Find the fastest mapping of GRAPH onto SYSTEM, prove it, judge it."""
    with shielded(final=True), errors(" before the first mapping was found"):
        from dfopt.cli.asking import asked_of, report_of
        from dfopt.documents.mapping import Pins
        from dfopt.errors import Infeasible
        from dfopt.search import answer
        from dfopt.show.progress import ProgressLine
        from dfopt.show.refusals import brief

        sections = detail_of(detail)
        check_output("--output", output, (".json", ".yaml", ".yml"))  # before the work, not after it
        check_output("--dump", dump, (".mps", ".lp"), parts=True)
        if kernel_by_kernel and (pin or p_max is not None):
            given = "--pin" if pin else "--p-max"
            raise PlanError(f"{given}: with --kernel-by-kernel every kernel has a partition of its own; leave one out")
        fixed = Pins.load(pins) if pins is not None else Pins()
        served = {"phase": phase, "context": context, "hit": hit, "seq": prompt, "draft": window, "tree": tree}
        served |= {"segments": segments, "microbatch": microbatch, "recompute": recompute}
        served |= {"batch": arguments.count_or("--batch", batch, "max")}
        pinned = {
            "pin_partition": {**fixed.partition, **arguments.partitions(pin)},
            "pin_sharding": {**fixed.sharding, **arguments.schemes(shard)},
            "modules": arguments.modules(module),
            "place": arguments.places(place),
        }
        options = {
            **fixed.on_axes,
            **arguments.on_axes(axes),
            **{
                "ep": ep,
                "cp": cp,
                "attention_dp": attention_dp,
                "interleave": interleave,
                "zero": arguments.levels("--zero", zero),
            },
            **{"first_layers": first_layers, "last_layers": last_layers, "two_batch_overlap": two_batch_overlap},
            **{"recomputed": recompute_layers, "p_max": fixed.p_max if p_max is None else p_max},
            "schedule": arguments.choice_or_none("--schedule", schedule, ("1f1b", "interleaved", "gpipe")),
            **arguments.overlaps(tp_comm_overlap, gradient_overlap, param_gather_overlap, p2p_overlap),
            "zero_replicas": arguments.sizes_or("--zero-replicas", zero_replicas, "all"),
            "offload": arguments.offloads(offload),
            **{name: words for name, words in pinned.items() if words},
            "formulation": arguments.choice_or_none("--formulation", formulation, ("auto", "assignment", "columns")),
            "gap": None if gap is None else arguments.ratio("--gap", gap),
            "heat": arguments.choice_or_none("--heat", heat, ("ignore", "aware")),
            **{"time_limit": time_limit, "seed": seed, "solver": solver, "top": top, "sensitivity": sensitivity},
            "distinct": arguments.choice_or_none("--distinct", distinct, ("plan", "sharding")),
        }
        kept = None if memory_reserve is None else arguments.ratio("--memory-reserve", memory_reserve)
        changes = {"execution": "kernel_by_kernel" if kernel_by_kernel else None, "memory_reserve": kept}
        question = asked_of(graph, system, like).changed(
            parameters=arguments.values(param, "--param") | arguments.given(served),
            set=arguments.values(set_, "--set") | arguments.given(changes),
            stack=stack,
            chips=chips,
            nodes=nodes,
            assumptions=assume,
            options=arguments.given(options),
        )
        line = ProgressLine(quiet=quiet)
        try:
            found = answer(question, progress=line, began=process_start())
        except Infeasible as error:
            raise error if as_json else Infeasible(brief(str(error.report)), error.least) from None
        finally:
            line.close()
        result = found.result
        for note in found.notes:
            echo(f"dfopt: {note}", err=True)
        try:
            _write(result, output, dump)
        finally:  # the answer is told, whatever becomes of the files
            emit(as_json, result, lambda: report_of(found, sections), 140 if sections else 80)
        near = result.gap <= result.request.gap * (1 + 1e-9) and not result.status.endswith("_with_solution")
        end_by([result.score], near or not require_proof)


@app.command()
def score(
    documents: Annotated[
        list[str],
        argument(
            "RESULT... | MAPPING GRAPH SYSTEM",
            "results, judged on their own graphs and systems and ranked; or a mapping (or result) on others",
        ),
    ],
    stack: StackOpt = None,
    tiles: Annotated[int, option("hottest tiles that --detail heat lists", metavar="N", min=0)] = 5,
    throttle: Annotated[
        bool, option("lower the clock of a stack that gets too hot", "--throttle/--no-throttle")
    ] = True,
    batch: Annotated[int | None, option("samples per step", min=1)] = None,
    param: ParamOpt = None,
    assume: Annotated[
        str | None,
        option("default: the result's own, else 'default'", "--assume", metavar="PROFILE|FILE"),
    ] = None,
    set_: SetOpt = None,
    time_limit: TimeLimitOpt = 60.0,
    detail: DetailOpt = None,
    as_json: JsonFlag = False,
) -> None:
    """Judge a mapping; on a stack of dies also its heat, energy and real memory: exit status 7 if a limit breaks."""
    with errors(time_limit=time_limit):
        from dfopt.cli.judging import judged
        from dfopt.show.details import answer_report
        from dfopt.show.physical import ranking_report

        sections = detail_of(detail)
        ranked = judged(documents, stack, throttle, batch, param, assume, set_)
        if len(ranked) == 1:
            [only] = (each.answer for each in ranked)
            emit(as_json, only.score, lambda: answer_report(only, None, sections, tiles), 140 if sections else 80)
        else:
            rows = [{"result": each.file, "score": each.score.to_data()} for each in ranked]
            emit(as_json, lambda: rows, lambda: ranking_report(ranked))
        end_by([each.score for each in ranked])


@app.command()
def heat(
    result: Annotated[str, argument("RESULT", "a result document of dfopt solve")],
    stack: Annotated[
        str | None, option("zoo name or file; default: that of the result", "--stack", metavar="STACK")
    ] = None,
    time_limit: TimeLimitOpt = 60.0,
    gap: Annotated[str, option("relative gap at which to stop, such as 1%; 0 proves", metavar="GAP")] = "0.01%",
    one_kelvin: Annotated[bool, option("solve once more with limits 1 K higher")] = True,
    seed: Annotated[int, option("seed of the solver", min=0)] = 0,
    solver: Annotated[str, option("of the MILPs, such as pulp:CBC", metavar="highs|pulp:NAME")] = "highs",
    output: Annotated[Path | None, option("write the report document", "-o", "--output")] = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare ways to deal with heat for RESULT: ignore it, throttle after the fact, optimise with it."""
    with errors(" before all answers were found", time_limit):
        from dfopt.library import load_mapping
        from dfopt.machines.stacks import load_stack
        from dfopt.search.heat_aware import heat_answers
        from dfopt.show.heat import heat_report

        check_output("--output", output, (".json", ".yaml", ".yml"))
        _, found = load_mapping(result)
        if found is None:
            raise PlanError(f"heat: {result} is a mapping, expected a result of `dfopt solve -o`, which has its graph")
        on = load_stack(stack) if stack is not None else None
        report = heat_answers(
            found, on, gap=arguments.ratio("--gap", gap), time_limit=seconds_left(time_limit),
            finite_difference=one_kelvin, solver=solver, seed=seed,
        )  # fmt: skip
        try:
            if output is not None:
                report.dump(output)
        finally:  # the answer is told, whatever becomes of the file
            emit(as_json, report, lambda: heat_report(report))


@app.command()
def compare(
    files: Annotated[list[str], argument("RESULT RESULT...", "results of dfopt solve -o")],
    output: Annotated[Path | None, option("write a page too", "-o", "--output", metavar="FILE.html")] = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Put results side by side: their figures, and what differs."""
    with errors():
        from dfopt.documents.files import write_text
        from dfopt.documents.result import Result
        from dfopt.show.compare import compare_page, compare_report

        check_output("--output", output, (".html", ".htm"))
        results = [Result.load(file) for file in files]
        told = compare_report(files, results)
        try:
            if output is not None:
                write_text(output, compare_page(files, results, __version__))
        finally:
            rows = {file: {"step_time_s": one.step_time_s, "utilization": one.utilization, "plan": one.plan.label}
                    for file, one in zip(files, results, strict=True)}  # fmt: skip
            emit(as_json, lambda: rows, lambda: told)
