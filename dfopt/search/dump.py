"""The MILPs behind a result, as files that other solvers read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.fusion.assignment import Assignment
from dfopt.fusion.columns import Columns
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import objective
from dfopt.fusion.priced import PricedStage
from dfopt.milp import Model, write_model
from dfopt.physics.efficiency import memory_rows
from dfopt.setting.instance import Setting
from dfopt.sharding import interchip
from dfopt.solving.fusing import default_p_max
from dfopt.solving.matrices import assignment_of, solved_together
from dfopt.solving.menu import Menu
from dfopt.solving.options import Options
from dfopt.solving.priced import priced_mapping

_NEAR = 1.1  # blocks of mappings up to 10 % slower than the result are in the model; more make it large


def dump_models(result: Result, path: str | Path) -> list[Path]:
    """Write the MILPs of the best plan of a result: the fusion as ``path``, the sharding next to it.

    Parameters
    ----------
    result : Result
        As :func:`optimize` returned it, or loaded from a file.
    path : path-like
        Ends in ``.mps`` or ``.lp``. The inter-chip problem goes to ``NAME.interchip.SUFFIX``, a fusion of a further
        pipeline stage to ``NAME.stage1.SUFFIX`` and so on; of a repeated graph ``stage1`` has the kernels before the
        first layer, ``stage2`` those after the last. Under ``sharding_objective: joint`` everything is in one file.

    Returns
    -------
    list of Path
        Files written.

    Raises
    ------
    DocumentError
        If the name ends otherwise or a file cannot be written.

    Examples
    --------
    >>> import tempfile, dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [file.name for file in dump_models(result, f"{folder}/model.lp")]
    ['model.lp']
    """
    path = Path(path)
    written = []
    for name, model in models(result):
        part = {"intrachip-0": "", "joint": ""}.get(name, "." + name.replace("intrachip-", "stage"))
        file = path.with_name(f"{path.stem}{part}{path.suffix}")
        write_model(model, file)
        written.append(file)
    return written


def models(result: Result) -> Iterator[tuple[str, Model]]:
    """Name and model of every MILP of the best plan: ``interchip``, ``intrachip-0`` and so on, or ``joint``.

    A fusion is written in the form in which it was solved; where blocks were generated on demand, as the
    paper's matrices, because there is no list of all blocks.
    """
    asked = result.request
    forms = {
        solve.stage: solve.formulation
        for record in result.plans
        if record.plan == result.plan and record.value is not None
        for solve in record.solves
        if solve.problem == "intrachip"
    }
    form = "assignment" if "assignment" in (asked.formulation, *forms.values()) else "auto"
    options = Options(asked).asking(formulation=form, gap=0.0, solver="highs", seed=0)
    setting = Setting(result.graph, result.system, result.assumptions)
    instance = setting.under(result.plan)
    joint = result.assumptions.sharding_objective == "joint"
    if joint and solved_together(result.graph, result.plan, asked):
        menu, tiles = Menu(instance.shared, asked.pin_sharding), result.mapping.tile_count
        matrices, _ = assignment_of(instance, options, menu, tiles, result.p_max)
        yield "joint", matrices.model
        return
    if memory_rows(result.system.chip, result.assumptions):
        problem = (
            f"{result.system.name}: found rows of unit memory, whose times are not linear in what a fusion chooses"
        )
        raise PlanError(f"{problem}; assume sharding_objective: joint, or leave them out")
    tables = interchip.build(instance.shared, asked.pin_sharding)
    yield "interchip", interchip.formulate(tables, result.assumptions)
    ready = priced_mapping(setting, result.mapping, options, listed=True)
    partition_k = ready.partitions(result.mapping)
    for number, stage in ready.stages.items():
        if stage.tables.chip.fused:
            yield f"intrachip-{number}", _fusion(stage, objective(stage.tables, partition_k[stage.members]))


def _fusion(stage: PricedStage, value: float) -> Model:
    if stage.lattice is not None:
        search = ShortestPath(stage.tables, stage.limits, stage.lattice, value * _NEAR)
        search.run()
        return Columns(search).model
    limits = stage.limits
    if limits.p_max >= stage.tables.kernels:  # any number: as many as a good mapping could use
        most = default_p_max(stage.tables, limits.forward_backward)
        limits = replace(limits, p_max=max(most, 1 + max((p for _, p in limits.pins), default=0)))
    return Assignment(stage.tables, limits).model
