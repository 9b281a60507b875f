"""Commands below the chip: derive, explore, and the import of DeepFlow's configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from dfopt import arguments
from dfopt.cli.common import (
    AssumeOpt,
    JsonFlag,
    ParamOpt,
    SetOpt,
    TimeLimitOpt,
    app,
    argument,
    assumptions_of,
    echo,
    emit,
    errors,
    graph_of,
    importer,
    option,
)
from dfopt.cli.outputs import ForceFlag, check_output
from dfopt.interrupts import seconds_left, shielded

_HEAT: dict[str, Any] = {"ignore": None, "throttle": "throttle", "aware": "aware"}


@app.command()
def derive(
    design: Annotated[str, argument("DESIGN", "budgets and their shares, with a technology: a zoo name or a file")],
    system: Annotated[
        Path | None, option("write the system of such chips that the template describes", metavar="FILE.yaml")
    ] = None,
    stack: Annotated[
        Path | None, option("write the chip as a stack of dies: floorplan, energies, levels", metavar="FILE.yaml")
    ] = None,
    on: Annotated[
        str, option("stack whose package, limits and DRAM timings, or DRAM dies, the chip has", metavar="STACK")
    ] = "hbm3",
    force: ForceFlag = False,
    time_limit: TimeLimitOpt = 60.0,
    as_json: JsonFlag = False,
) -> None:
    """Derive a chip from a technology and budgets: its components, what binds each, and what is left over."""
    with errors(time_limit=time_limit):
        from dfopt.api import derive as derived
        from dfopt.errors import SystemSpecError
        from dfopt.show.technology import chip_report
        from dfopt.technology.told import told, told_price

        check_output("--system", system, (".yaml", ".yml", ".json"))
        check_output("--stack", stack, (".yaml", ".yml", ".json"))
        made = derived(design, on)
        try:
            parts, price = told(made.components), told_price(made.price)
            if system is not None:
                made.system.dump(system)
            if stack is not None:
                made.stack.dump(stack)
        except SystemSpecError as error:  # which knows the design's name alone
            raise SystemSpecError(design, error.issues) from None
        said = {"components": parts, "price": price}
        emit(as_json, lambda: said, lambda: chip_report(made.design, parts, price))
        if system is not None:
            echo(f"dfopt: wrote {system}; `dfopt solve GRAPH {system}` maps onto it", err=True)
        if stack is not None:
            said_of = f"what {design} does not say is of stack {on}"
            echo(f"dfopt: wrote {stack} ({said_of}); it goes with --stack {stack}", err=True)


@app.command("explore")
def explore_designs(
    graph: Annotated[str, argument("GRAPH", "the workload: a name of the zoo, or a file")],
    design: Annotated[str, argument("DESIGN", "with shares that are auto, and a template: a zoo name or a file")],
    technologies: Annotated[
        str,
        option(
            "in place of that of the design, each of these: zoo names or files; of parts (n3+hbm4) what they have",
            metavar="NAME[,NAME...]",
        ),
    ] = "",
    objective: Annotated[
        str, option("what is made least: of a step, or of the system", metavar="time|energy|cost|time*cost")
    ] = "time",
    stack: Annotated[
        str | None, option("with --heat: what designs do not say of their stacks of dies", metavar="STACK")
    ] = None,
    heat: Annotated[
        str, option("a clock that keeps limits, or mappings around heat", metavar="ignore|throttle|aware")
    ] = "ignore",
    gap: Annotated[str, option("stop when no design can be better by more than this part", metavar="PART")] = "1%",
    time_limit: Annotated[
        float, option("seconds for everything; then the best design so far is told with its gap", min=0.1)
    ] = 60.0,
    output: Annotated[Path | None, option("file for the exploration", "-o", "--output", metavar="FILE.json")] = None,
    param: ParamOpt = None,
    assume: AssumeOpt = None,
    set_: SetOpt = None,
    seed: Annotated[int, option("of the solver", min=0)] = 0,
    top: Annotated[int, option("how many of the best designs to tell", min=1, max=1000)] = 1,
    sensitivity: Annotated[bool, option("what 10 % more of each budget would buy, in the time that is left")] = True,
    range_: Annotated[
        bool, option("the same at both ends of what sources give for the energy of DRAM, dram.energy_range", "--range")
    ] = False,
    store: Annotated[
        Path | None, option("file of what was solved: an exploration that was ended goes on there", metavar="FILE")
    ] = None,
    jobs: Annotated[
        int, option("processes that solve, of one thread each; the answer is the same for any number", min=1)
    ] = 1,
    quiet: Annotated[bool, option("no progress", "-q", "--quiet")] = False,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Choose the sizes of a design for a workload: the best of all of them, with a proof."""
    with shielded(final=True), errors(" before the first design was found", time_limit):
        from dfopt.exploring.explore import explore
        from dfopt.physics.merits import MERITS
        from dfopt.show.exploration import exploration_report
        from dfopt.show.progress import ProgressLine

        check_output("--output", output, (".json", ".yaml", ".yml"))
        line = ProgressLine(quiet=quiet)
        try:
            made = explore(
                graph_of(graph, param),
                design,
                objective=arguments.choice("--objective", objective, tuple(MERITS)),
                stack=stack,
                heat=_HEAT[arguments.choice("--heat", heat, tuple(_HEAT))],
                technologies=[name for name in technologies.split(",") if name],
                assumptions=assumptions_of(assume or "default", set_),
                gap=arguments.ratio("--gap", gap),
                time_limit=seconds_left(time_limit),
                seed=seed,
                top=top,
                sensitivity=sensitivity,
                range=range_,
                store=store,
                jobs=jobs,
                progress=line,
            )
        finally:
            line.close()
        try:
            if output is not None:
                made.dump(output)
        finally:  # the answer is told, whatever becomes of the file
            emit(as_json, made, lambda: exploration_report(made))
        if output is not None:
            echo(f"dfopt: wrote {output}; `dfopt check {output}` proves it again", err=True)


@importer.command("deepflow")
def import_deepflow(
    config: Annotated[Path, argument("CONFIG.yaml", "a hardware configuration of DeepFlow")],
    output: Annotated[Path, option("file for the design", "-o", "--output", metavar="FILE.yaml")],
    force: ForceFlag = False,
    time_limit: TimeLimitOpt = 60.0,
) -> None:
    """Import a hardware configuration of DeepFlow: writes a design, and names what it leaves out."""
    with errors(time_limit=time_limit):
        from dfopt.documents.strict_yaml import load_strict
        from dfopt.frontends.deepflow import read_design

        check_output("--output", output, (".yaml", ".yml"))
        made, unused = read_design(load_strict(config), config.stem, str(config))
        made.dump(output)
        echo(f"{made.name}: {', '.join(made.technology.components)}")
        if unused:
            echo(f"not used: {', '.join(unused)}")
        echo(f"dfopt: wrote {output}; `dfopt derive {output}` shows its chip")
