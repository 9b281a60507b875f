"""Commands about mappings: score judges one, heat and compare put several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfopt import __version__, arguments
from dfopt.cli.common import (
    HEAT,
    OUTPUT,
    DetailOpt,
    JsonFlag,
    ParamOpt,
    SetOpt,
    StackOpt,
    TimeLimitOpt,
    app,
    argument,
    detail_of,
    emit,
    errors,
    option,
    under,
)
from dfopt.cli.outputs import ForceFlag, check_output
from dfopt.errors import PlanError
from dfopt.interrupts import seconds_left

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dfopt.documents.score import Score

LIMIT_BROKEN = 7
"""Exit status when a stack of dies is too hot, draws too much power, or is too small."""
UNPROVEN = 8
"""Exit status of an answer whose gap is above what was asked for, where a proof is required."""


def end_by(scores: Sequence[Score], proven: bool = True) -> None:
    """End a command that has told its answer: with a status of its own for broken limits and for a missing proof."""
    if any(score.physical is not None and score.physical.violations for score in scores):
        raise typer.Exit(LIMIT_BROKEN)
    if not proven:
        raise typer.Exit(UNPROVEN)


@app.command()
def score(
    documents: Annotated[
        list[str],
        argument(
            "RESULT... | MAPPING GRAPH SYSTEM",
            "Results to judge and rank, or a mapping with the graph and the system to judge it on.",
        ),
    ],
    stack: StackOpt = None,
    tiles: Annotated[
        int, under(HEAT, "Number of hottest tiles that --detail heat lists; default: 5.", metavar="N", min=0)
    ] = 5,
    throttle: Annotated[
        bool, under(HEAT, "Lower the clock of a stack that gets too hot; default: on.", "--throttle/--no-throttle")
    ] = True,
    batch: Annotated[int | None, option("Sequences of a step of GRAPH, such as 64.", min=1)] = None,
    param: ParamOpt = None,
    assume: Annotated[
        str | None,
        option("Assumptions, such as ideal; default: those of the result.", "--assume", metavar="PROFILE|FILE"),
    ] = None,
    set_: SetOpt = None,
    time_limit: TimeLimitOpt = 60.0,
    detail: DetailOpt = None,
    as_json: JsonFlag = False,
) -> None:
    """Judge a mapping: its time, traffic and memory, and on a stack of dies its heat and energy.

    The exit status is 7 if a limit of the stack breaks.

    Examples:
        dfopt score best.json
        dfopt score best.json --stack microbump-8 --detail heat
        dfopt score best.json llama-3.1-70b h200-8 --assume ideal
    """
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
    result: Annotated[str, argument("RESULT", "Result of dfopt solve -o.")],
    stack: Annotated[
        str | None,
        under(HEAT, "Stack of dies: zoo name or file; default: that of the result.", "--stack", metavar="STACK"),
    ] = None,
    time_limit: TimeLimitOpt = 60.0,
    gap: Annotated[str, option("Relative gap at which to stop, such as 1%; default: 0.01%.", metavar="GAP")] = "0.01%",
    one_kelvin: Annotated[bool, option("Solve once more with limits that are 1 K higher; default: on.")] = True,
    seed: Annotated[int, option("Seed of the solver; default: 0.", min=0)] = 0,
    solver: Annotated[
        str, option("Solver of the MILPs, such as pulp:CBC; default: highs.", metavar="highs|pulp:NAME")
    ] = "highs",
    output: Annotated[
        Path | None, under(OUTPUT, "File for the answers, such as heat.json.", "-o", "--output", metavar="FILE")
    ] = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare three ways to deal with heat: ignore it, throttle the mapping, or choose the mapping around it.

    Examples:
        dfopt heat best.json --stack microbump-8
        dfopt heat best.json --gap 1% -o heat.json
        dfopt heat best.json --no-one-kelvin --json
    """
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
    files: Annotated[list[str], argument("RESULT RESULT...", "Results of dfopt solve -o.")],
    output: Annotated[
        Path | None, under(OUTPUT, "File for a page with the comparison.", "-o", "--output", metavar="FILE.html")
    ] = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Put results side by side: first what differs between them, then their figures.

    Examples:
        dfopt compare tp4.json tp8.json
        dfopt compare h100.json h200.json -o compare.html
        dfopt compare a.json b.json c.json --format csv
    """
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
