"""Commands about mappings: score judges one, heat and compare put several side by side."""

from __future__ import annotations

from pathlib import Path

from dfopt import __version__, arguments
from dfopt.cli.common import app, detail_of, emit, end_by, errors, importing
from dfopt.cli.outputs import check_output
from dfopt.errors import PlanError
from dfopt.interrupts import seconds_left


@app.command()
def score(
    documents: list[str], stack: str | None = None, tiles: int = 5, throttle: bool = True, batch: int | None = None,
    param: list[str] | None = None, assume: str | None = None, set_: list[str] | None = None,
    time_limit: float = 60.0, detail: str | None = None, as_json: bool = False,
) -> None:  # fmt: skip
    """Judge a mapping: its time, traffic and memory, and on a stack of dies its heat and energy.

    The exit status is 7 if a limit of the stack breaks.

    Arguments:
        documents (RESULT... | MAPPING GRAPH SYSTEM): Results to judge and rank, or a mapping with the graph and the
            system to judge it on.

    Heat:
        tiles (N 0..): Number of hottest tiles that --detail heat lists; default: 5.
        throttle: Lower the clock of a stack that gets too hot; default: on.

    Options:
        batch (N 1..): Sequences of a step of GRAPH, such as 64.
        assume (PROFILE|FILE): Assumptions, such as ideal; default: those of the result.

    Examples:
        dfopt score best.json
        dfopt score best.json --stack microbump-8 --detail heat
        dfopt score best.json llama-3.1-70b h200-8 --assume ideal
    """
    with errors(time_limit=time_limit):
        with importing():
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
    result: str, stack: str | None = None, time_limit: float = 60.0, gap: str = "0.01%", one_kelvin: bool = True,
    seed: int = 0, solver: str = "highs", output: Path | None = None, force: bool = False, as_json: bool = False,
) -> None:  # fmt: skip
    """Compare three ways to deal with heat: ignore it, throttle the mapping, or choose the mapping around it.

    Arguments:
        result (RESULT): Result of dfopt solve -o.

    Heat:
        stack (STACK): Stack of dies: zoo name or file; default: that of the result.

    Options:
        gap (GAP): Relative gap at which to stop, such as 1%; default: 0.01%.
        one_kelvin: Solve once more with limits that are 1 K higher; default: on.
        seed (N 0..): Seed of the solver; default: 0.
        solver (highs|pulp:NAME): Solver of the MILPs, such as pulp:CBC; default: highs.

    Output:
        output (-o FILE): File for the answers, such as heat.json.

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
        _, solved = load_mapping(result)
        if solved is None:
            raise PlanError(f"heat: {result} is a mapping, expected a result of `dfopt solve -o`, which has its graph")
        on = load_stack(stack) if stack is not None else None
        report = heat_answers(
            solved, on, gap=arguments.ratio("--gap", gap), time_limit=seconds_left(time_limit),
            one_kelvin=one_kelvin, solver=solver, seed=seed,
        )  # fmt: skip
        emit(as_json, report, lambda: heat_report(report), files=[(output, report.dump)])


@app.command()
def compare(files: list[str], output: Path | None = None, force: bool = False, as_json: bool = False) -> None:
    """Put results side by side: first what differs between them, then their figures.

    Arguments:
        files (RESULT): Results of dfopt solve -o.

    Output:
        output (-o FILE.html): File for a page with the comparison.

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
        report = compare_report(files, results)
        rows = {file: {"step_time_s": each.step_time_s, "utilization": each.utilization, "plan": each.plan.label}
                for file, each in zip(files, results, strict=True)}  # fmt: skip
        page = (output, lambda path: write_text(path, compare_page(files, results, __version__)))
        emit(as_json, lambda: rows, lambda: report, files=[page])
