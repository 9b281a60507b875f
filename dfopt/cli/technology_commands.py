"""Commands below the chip: derive, explore, and the import of DeepFlow's configurations."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from dfopt import arguments
from dfopt.cli.common import app, assumptions_of, echo, emit, errors, importer, importing
from dfopt.cli.outputs import check_output
from dfopt.cli.question_options import split_options, with_question_options
from dfopt.errors import SystemSpecError
from dfopt.interrupts import seconds_left, shielded

_HEAT: dict[str, Any] = {"ignore": None, "throttle": "throttle", "aware": "aware", "lumped": "lumped"}


@app.command()
def derive(
    design: str,
    system_out: Path | None = None,
    stack_out: Path | None = None,
    on: str | None = None,
    force: bool = False,
    time_limit: float = 60.0,
    as_json: bool = False,
) -> None:
    """Derive a chip from a technology and budgets: its components, and which budget binds each.

    Arguments:
        design (DESIGN): Design with budgets and a technology: a zoo name or a file.

    Options:
        on (STACK): Stack with package, limits and DRAM timings; default: hbm3, or hybrid-vault for DRAM layers.

    Output:
        system_out (FILE.yaml): File for the system of the template, such as s.yaml.
        stack_out (FILE.yaml): File for the chip as a stack of dies, such as stack.yaml.

    Examples:
        dfopt derive h100
        dfopt derive my-design.yaml --system-out my-system.yaml
        dfopt derive h100 --stack-out stack.yaml --on hbm3
    """
    with errors(time_limit=time_limit):
        from dfopt.api import derive as derived
        from dfopt.show.technology import chip_report
        from dfopt.technology.plain_data import plain_figures, plain_price

        check_output("--system-out", system_out, (".yaml", ".yml", ".json"))
        check_output("--stack-out", stack_out, (".yaml", ".yml", ".json"))
        derivation = derived(design, on)
        try:
            parts = plain_figures(derivation.components, derivation.design.sizes is not None)
            price = plain_price(derivation.price)
            if system_out is not None:
                derivation.system.dump(system_out)
            if stack_out is not None:
                derivation.stack.dump(stack_out)
        except SystemSpecError as error:  # which knows the design's name alone
            raise SystemSpecError(design, error.issues) from None
        data = {"components": parts, "price": price}
        emit(as_json, lambda: data, lambda: chip_report(derivation.design, parts, price))
        if system_out is not None:
            echo(f"dfopt: wrote {system_out}; `dfopt solve GRAPH {system_out}` maps onto it", err=True)
        if stack_out is not None:
            rest = f"what {design} does not say is of stack {on or derivation.on_name}"
            echo(f"dfopt: wrote {stack_out} ({rest}); it goes with --stack {stack_out}", err=True)


def explore_designs(
    graph: str, design: str, technologies: str = "", objective: str = "time", step_limit: str | None = None,
    power_limit: str | None = None, cost_limit: float | None = None,
    area_limit: float | None = None, stack: str | None = None,
    heat: str = "ignore", temperature_limit: float | None = None, gap: str = "1%", time_limit: float = 60.0,
    output: Path | None = None, param: list[str] | None = None, assume: str | None = None,
    set_: list[str] | None = None, seed: int = 0,
    top: int = 1, sensitivity: bool = True, compare: str = "", range_: bool = False,
    store: Path | None = None, jobs: int = 1, cluster: str | None = None,
    quiet: bool = False, force: bool = False, as_json: bool = False, **options: Any,
) -> None:  # fmt: skip
    """Choose the sizes of a design for a workload: the best of all designs, with a proof.

    Arguments:
        graph (GRAPH): Workload: a zoo name or a file.
        design (DESIGN): Design with shares that are auto, or choices of sizes: a zoo name or a file.

    Workload and model:
        {workload}

    Parallelism:
        {parallelism}

    Search:
        gap (GAP): Relative gap at which to stop, such as 5%; default: 1%.
        seed (N 0..): Seed of the solver; default: 0.
        top (K 1..1000): Number of best designs to keep; default: 1.
        sensitivity: Report the gain from more of each budget, a layer, or looser limits; default: on.
        compare (QUESTION[,QUESTION...]): Also show what lumped heat, tp_pp_dp or expanded would choose.
        range_ (--range): Repeat with the least and the most energy of DRAM that sources give.
        jobs (N 1..): Number of processes, of one thread each; default: 1.
        cluster (ADDRESS): Scheduler of a Dask cluster that solves, such as tcp://10.0.0.1:8786.

    Heat:
        stack (STACK): Stack with the package and limits of the chip, for --heat; default: hbm3.
        heat (ignore|throttle|aware|lumped): A lower clock, mappings around heat, or a formula; default: ignore.
        temperature_limit (DEGC): Highest temperature of every die, such as 85; default: of the stack, lumped: 95.

    Options:
        technologies (NAME[,NAME...]): Technologies to try instead of that of the design, such as n5,n3+hbm4.
        objective (time|watts|cost|time*cost|energy|tokens_per_s|tokens_per_j|power_scaled): Metric of which the
            best design has the least, or of tokens the most; default: time.
        step_limit (TIME): Longest time of a step that a design may have, such as 50ms; default: no limit.
        power_limit (POWER): Highest power of the whole system, such as 20kW; default: no limit.
        cost_limit (USD): Highest price of the whole system, such as 2000000; default: no limit.
        area_limit (MM2): Largest area of a chip, such as 600; default: the budget of the design.

    Output:
        output (-o FILE.json): File for the exploration, such as designs.json.
        store (FILE): File of record, with which an exploration goes on; default: none.

    Examples:
        dfopt explore gpt2-small my-design.yaml --time-limit 300
        dfopt explore deepseek-v3 my-design.yaml --phase decode --batch 64 --context 4096
        dfopt explore llama-3.1-8b my-design.yaml --objective cost --step-limit 50ms
        dfopt explore llama-3.1-8b my-design.yaml --phase decode --batch 16,64,256 --objective tokens_per_s
        dfopt explore llama-3.1-8b stacked.yaml --objective tokens_per_s --heat lumped --temperature-limit 85
        dfopt explore gpt2-small my-design.yaml --technologies n5,n3 --jobs 4
    """
    with shielded(final=True), errors(" before the first design was found", time_limit):
        with importing():
            from dfopt.documents.exploration_request import COMPARED
            from dfopt.exploring.explore import explore
            from dfopt.physics.merits import MERITS
            from dfopt.show.exploration import exploration_report
            from dfopt.show.progress import ProgressLine

        check_output("--output", output, (".json", ".yaml", ".yml"))
        served, fields = split_options(options)
        with closing(ProgressLine(quiet=quiet)) as line:
            exploration = explore(
                graph,
                design,
                objective=arguments.choice("--objective", objective, tuple(MERITS)),
                limits=arguments.design_limits(step_limit, power_limit, cost_limit, temperature_limit, area_limit),
                stack=stack,
                heat=_HEAT[arguments.choice("--heat", heat, tuple(_HEAT))],
                technologies=[name for name in technologies.split(",") if name],
                assumptions=assumptions_of(assume or "default", set_),
                gap=arguments.ratio("--gap", gap),
                time_limit=seconds_left(time_limit),
                seed=seed,
                top=top,
                sensitivity=sensitivity,
                compare=[arguments.choice("--compare", name, COMPARED) for name in compare.split(",") if name],
                range=range_,
                store=store,
                jobs=jobs,
                cluster=cluster,
                progress=line,
                **arguments.values(param, "--param"),
                **served,
                **fields,
            )
        emit(as_json, exploration, lambda: exploration_report(exploration), files=[(output, exploration.dump)])
        if output is not None:
            echo(f"dfopt: wrote {output}; `dfopt check {output}` proves it again", err=True)


app.command("explore")(with_question_options(explore_designs))


@importer.command("deepflow")
def import_deepflow(config: Path, output: Path, force: bool = False, time_limit: float = 60.0) -> None:
    """Import a hardware configuration of DeepFlow: write a design, and name the fields that it leaves out.

    Arguments:
        config (CONFIG.yaml): Hardware configuration of DeepFlow.

    Output:
        output (-o FILE.yaml): File for the design, such as design.yaml.

    Examples:
        dfopt import deepflow config.yaml -o design.yaml
    """
    with errors(time_limit=time_limit):
        from dfopt.documents.strict_yaml import load_strict
        from dfopt.frontends.deepflow import read_design

        check_output("--output", output, (".yaml", ".yml"))
        imported, unused = read_design(load_strict(config), config.stem, str(config))
        imported.dump(output)
        echo(f"{imported.name}: {', '.join(imported.technology.components)}")
        if unused:
            echo(f"not used: {', '.join(unused)}")
        echo(f"dfopt: wrote {output}; `dfopt derive {output}` shows its chip")
