"""The command about heat: three answers for the plan of a result, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dfopt.cli.common import JsonFlag, app, argument, check_output, emit, errors, option


@app.command()
def heat(
    result: Annotated[str, argument("RESULT", "a result document of dfopt solve")],
    stack: Annotated[
        str | None, option("zoo name or file; default: that of the result", "--stack", metavar="STACK")
    ] = None,
    time_limit: Annotated[float, option("seconds for everything", min=0.1)] = 60.0,
    gap: Annotated[float, option("relative gap at which to stop; 0 proves", min=0.0, max=1.0)] = 1e-4,
    one_kelvin: Annotated[bool, option("solve once more with limits 1 K higher")] = True,
    seed: Annotated[int, option("seed of the solver", min=0)] = 0,
    solver: Annotated[str, option("of the MILPs, such as pulp:CBC", metavar="highs|pulp:NAME")] = "highs",
    output: Annotated[Path | None, option("write the report document", "-o", "--output")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare ways to deal with heat for RESULT: ignore it, throttle after the fact, optimise with it."""
    with errors(" before all answers were found"):
        from dfopt.errors import PlanError
        from dfopt.library import load_mapping
        from dfopt.machines.stacks import load_stack
        from dfopt.search.heat_aware import heat_answers
        from dfopt.show.heat import heat_report

        check_output("--output", output, (".json", ".yaml", ".yml"))
        _, found = load_mapping(result)
        if found is None:
            raise PlanError(f"heat: {result} is a mapping, expected a result of `dfopt solve -o`, which has its graph")
        report = heat_answers(
            found,
            load_stack(stack) if stack is not None else None,
            gap=gap,
            time_limit=time_limit,
            finite_difference=one_kelvin,
            solver=solver,
            seed=seed,
        )
        try:
            if output is not None:
                report.dump(output)
        finally:  # the answer is told, whatever becomes of the file
            emit(as_json, report.to_data, lambda: heat_report(report))
