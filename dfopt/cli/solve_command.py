"""``dfopt solve``: the fastest mapping of a graph onto a system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dfopt import arguments
from dfopt.cli.common import (
    BY_HAND,
    HEAT,
    MACHINE,
    OUTPUT,
    PARALLEL,
    SEARCH,
    WORKLOAD,
    AssumeOpt,
    DetailOpt,
    GradientOverlapOpt,
    JsonFlag,
    OffloadOpt,
    ParameterOverlapOpt,
    ParamOpt,
    PlaceOpt,
    QuietFlag,
    SendingOverlapOpt,
    SetOpt,
    StackOpt,
    TensorOverlapOpt,
    app,
    argument,
    detail_of,
    echo,
    emit,
    errors,
    names_in,
    under,
)
from dfopt.cli.mappings import end_by
from dfopt.cli.outputs import ForceFlag, check_output
from dfopt.documents.axes import keys, spelled_out
from dfopt.errors import PlanError
from dfopt.interrupts import process_start, shielded

if TYPE_CHECKING:
    from dfopt.documents.result import Result

# An option without a text has that of the field of its name.
_Degree = Annotated[int | None, under(PARALLEL, "", min=1)]
_Layers = Annotated[int | None, under(PARALLEL, "", min=0)]
_Dims = Annotated[str | None, under(PARALLEL, "", metavar="DIM[,DIM...]")]
_Number = Annotated[int | None, under(SEARCH, "", min=0)]


def _write(result: Result, output: Path | None, dump: Path | None) -> None:
    """The files of an answer that were asked for."""
    from dfopt.search import dump_models

    if output is not None:
        result.dump(output)
    for written in [] if dump is None else dump_models(result, dump):
        echo(f"dfopt: wrote {written}", err=True)


@app.command()
@spelled_out({key: (_Dims if dims else _Degree, None) for key, (_, dims) in keys().items()}, "interleave")
def solve(
    graph: Annotated[
        str | None,
        argument("[GRAPH|QUESTION]", "Workload: a zoo name, a file, or a question alone.", names_in("graphs")),
    ] = None,
    system: Annotated[
        str | None,
        argument("[SYSTEM]", "Machine: a zoo name, NAME:CHIPS such as h100:64, or a file.", names_in("systems")),
    ] = None,
    phase: Annotated[
        str | None,
        under(
            WORKLOAD,
            "Work of a step: a pass over whole samples, a training step, or a step of serving; default: forward.",
            metavar="forward|training|prefill|decode|verify|mixed",
        ),
    ] = None,
    batch: Annotated[
        str | None,
        under(WORKLOAD, "Sequences of a step, such as 64; max: the largest number that fits.", metavar="N|max"),
    ] = None,
    isl: Annotated[int | None, under(WORKLOAD, "Input length: tokens of a sequence, such as 4096.", min=1)] = None,
    osl: Annotated[
        int | None,
        under(WORKLOAD, "Output length in tokens: decode halfway, with isl + osl / 2 cached tokens.", min=1),
    ] = None,
    context: Annotated[
        int | None, under(WORKLOAD, "Cached tokens of each sequence in decode or verify; default: isl.", min=0)
    ] = None,
    cached: Annotated[
        int | None, under(WORKLOAD, "Tokens of a prompt that are cached before prefill; default: 0.", min=0)
    ] = None,
    draft: Annotated[int | None, under(WORKLOAD, "Draft tokens that verify checks, such as 3.", min=0)] = None,
    tree: Annotated[
        str | None,
        under(WORKLOAD, "Depth of each token of a draft tree in verify, such as 0,1,1,2.", metavar="0,1[,N...]"),
    ] = None,
    segments: Annotated[
        str | None,
        under(
            WORKLOAD,
            "Groups of sequences in mixed, as SEQUENCESxNEW@CACHED, such as 1x512@0,16x1@4096.",
            metavar="SxN@C[,SxN@C...]",
        ),
    ] = None,
    microbatch: Annotated[
        str | None,
        under(WORKLOAD, "Sequences of a microbatch, such as 1,2; default: dfopt chooses.", metavar="N[,N...]|all"),
    ] = None,
    recompute: Annotated[
        str | None,
        under(
            WORKLOAD,
            "Activation recomputation in training, such as none, attention or full; default: dfopt chooses.",
            metavar="none|NAME[+NAME...][/OTHERS][,...]|all",
        ),
    ] = None,
    recompute_layers: Annotated[
        int | None,
        under(
            WORKLOAD, "Layers of a stage that recompute, with --recompute SOME/OTHERS; default: dfopt chooses.", min=1
        ),
    ] = None,
    param: ParamOpt = None,
    assume: AssumeOpt = None,
    set_: SetOpt = None,
    like: Annotated[
        Path | None,
        under(
            WORKLOAD, "Ask the question of an earlier result again, with the other options changed.", metavar="RESULT"
        ),
    ] = None,
    chips: Annotated[
        int | None,
        under(MACHINE, "Number of chips of SYSTEM instead of its own, such as 64.", "--chips", "--gpus", min=1),
    ] = None,
    nodes: Annotated[
        int | None, under(MACHINE, "Number of nodes of SYSTEM instead of its own, such as 8.", min=1)
    ] = None,
    memory_reserve: Annotated[str | None, under(MACHINE, "", metavar="PART")] = None,
    interleave: _Degree = None,
    first_layers: _Layers = None,
    last_layers: _Layers = None,
    schedule: Annotated[str | None, under(PARALLEL, "", metavar="1f1b|interleaved|gpipe")] = None,
    ep: _Degree = None,
    cp: _Degree = None,
    attention_dp: _Degree = None,
    two_batch_overlap: Annotated[bool | None, under(PARALLEL, "")] = None,
    tp_comm_overlap: TensorOverlapOpt = None,
    gradient_overlap: GradientOverlapOpt = None,
    param_gather_overlap: ParameterOverlapOpt = None,
    p2p_overlap: SendingOverlapOpt = None,
    zero: Annotated[str | None, under(PARALLEL, "", metavar="0|1|2|3[,...]|all")] = None,
    zero_replicas: Annotated[str | None, under(PARALLEL, "", metavar="N[,N...]|all")] = None,
    module: Annotated[
        list[str] | None,
        under(
            PARALLEL,
            "Split of a module over the chips of --mp, such as mixer=n; may be repeated.",
            metavar="MODULE=n|outer|m|context|none",
        ),
    ] = None,
    p_max: Annotated[int | None, under(BY_HAND, "", min=1)] = None,
    kernel_by_kernel: Annotated[
        bool, under(BY_HAND, "Run every kernel by itself, without fusion.", "--kernel-by-kernel")
    ] = False,
    place: PlaceOpt = None,
    pin: Annotated[
        list[str] | None,
        under(BY_HAND, "Partition of a kernel, such as FFN0=2; may be repeated.", metavar="KERNEL=PARTITION"),
    ] = None,
    shard: Annotated[
        list[str] | None,
        under(BY_HAND, "Sharding of a kernel, such as FFN0=m; may be repeated.", metavar="KERNEL=SCHEME"),
    ] = None,
    pins: Annotated[Path | None, under(BY_HAND, "File with everything that you fix by hand.", metavar="FILE")] = None,
    stack: StackOpt = None,
    heat: Annotated[str | None, under(HEAT, "", metavar="ignore|aware")] = None,
    offload: OffloadOpt = None,
    time_limit: Annotated[
        float | None, under(SEARCH, "Seconds for the whole command, such as 300; default: 60.", min=0.1)
    ] = None,
    gap: Annotated[str | None, under(SEARCH, "", metavar="GAP")] = None,
    require_proof: Annotated[
        bool, under(SEARCH, "Exit with status 8 if the gap stays above --gap.", "--require-proof")
    ] = False,
    formulation: Annotated[str | None, under(SEARCH, "", metavar="auto|assignment|columns")] = None,
    seed: _Number = None,
    solver: Annotated[str | None, under(SEARCH, "", metavar="highs|pulp:NAME")] = None,
    top: Annotated[int | None, under(SEARCH, "", metavar="K", min=1)] = None,
    distinct: Annotated[str | None, under(SEARCH, "", metavar="plan|sharding")] = None,
    sensitivity: Annotated[bool, under(SEARCH, "")] = True,
    output: Annotated[
        Path | None, under(OUTPUT, "File for the result, such as best.json.", "-o", "--output", metavar="FILE.json")
    ] = None,
    dump: Annotated[
        Path | None, under(OUTPUT, "File for the MILPs of the best plan, such as best.lp.", metavar="FILE.mps|FILE.lp")
    ] = None,
    detail: DetailOpt = None,
    quiet: QuietFlag = False,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
    **axes: Any,
) -> None:
    """Find the fastest mapping of GRAPH onto SYSTEM, and prove it.

    Name a workload and a machine, or a file that has the question. What you do not fix, dfopt chooses.

    Examples:
        dfopt solve llama-3.1-70b h100-8 --phase decode --batch 16 --context 4096
        dfopt solve gpt3-175b a100-512 --phase training --gap 1% -o best.json
        dfopt solve my-model/config.json h100:64 --phase prefill --isl 4096 --tp 8
    """
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
        served = {"phase": phase, "context": context, "cached": cached, "isl": isl, "osl": osl, "draft": draft}
        served |= {"tree": tree, "segments": segments, "microbatch": microbatch, "recompute": recompute}
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
            **{"ep": ep, "cp": cp, "attention_dp": attention_dp, "interleave": interleave},
            "zero": arguments.levels("--zero", zero),
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
            stack=stack, chips=chips, nodes=nodes, assumptions=assume, options=arguments.given(options),
        )  # fmt: skip
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
