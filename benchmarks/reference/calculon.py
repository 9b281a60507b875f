"""What Calculon printed for executions, held against dfopt's judge under its profile: step time, its parts, memory.

Lines ``A1``, ``A2`` and ``A4`` are bars (``A1``: step time, ``A2``: each of its parts in share of the step, both of
executions without any overlap; ``A4``: step time with tensor-parallel overlap, of rows where that program does not
expose more data-parallel time than is on the link, ``dp_exposed_gt_link``); all others are told beside.

``python benchmarks/reference/calculon.py CSV [--files DIR] [--json]``. A row of the CSV has the fields of an execution
(`dfopt.frontends.calculon.files.Execution`), ``model``, ``system``, ``variant``, and of what the program printed
``total_time_s``, the seconds of :data:`PARTS` and ``mem_tier1_req_B``. ``DIR`` has MODEL.json and SYSTEM.json.

Nothing is searched: every kernel runs alone, in the order of the graph, under the plan and the shardings that an import
pins. Rows that an import refuses are counted with its reason.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from line import Line, told

from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.placement import Placement
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.errors import DfoptError, DocumentError
from dfopt.frontends.calculon import CalculonCase, load_case
from dfopt.frontends.calculon.files import Execution
from dfopt.judge import evaluate

FILES = Path(__file__).parents[2] / "tests" / "golden" / "calculon"
PARTS = {
    "fw_time_s": "forward_s",
    "bw_time_s": "backward_s",
    "optim_step_time_s": "optimizer_s",
    "recompute_time_s": "recompute_s",
    "recomm_exposed_time_s": "recomputed_communication_s",
    "bubble_time_s": "bubble_s",
    "tp_comm_exposed_time_s": "tensor_parallel_s",
    "pp_comm_exposed_time_s": "pipeline_parallel_s",
    "dp_comm_exposed_time_s": "data_parallel_s",
    "fw_offload_exposed_time_s": "offload_forward_s",
    "bw_offload_exposed_time_s": "offload_backward_s",
}
"""Seconds of a step by the program's name and by ours."""
LINKS = {
    "tp_comm_link_time_s": "tensor_parallel_s",
    "recomm_link_time_s": "recomputed_communication_s",
    "pp_comm_link_time_s": "pipeline_parallel_s",
    "dp_comm_link_time_s": "data_parallel_s",
}
"""The same of seconds on links."""
Row = dict[str, str]


@dataclass(frozen=True)
class Seen:
    """Relative errors of a row, signed: of the step, of each part (of the step it is a part of), of tier-1 memory.

    ``bar``: the one whose row it is, ``A1`` or ``A4``, or nothing.
    """

    bar: str
    variant: str
    step: float
    parts: dict[str, float]
    memory: float


def execution(row: Row) -> dict[str, object]:
    """The fields of a row that are those of an execution, as its file has them; of the others it says nothing."""
    words: dict[str, object] = {"true": True, "false": False}
    found: dict[str, object] = {"attention_type": "multihead", "training": True}
    for name in Execution.model_fields:
        if name in row:
            found[name] = words.get(row[name], int(row[name]) if row[name].isdigit() else row[name])
    return found


def mapping_of(case: CalculonCase) -> Mapping:
    """The mapping that the pins leave: every kernel alone, in the order of the graph."""
    assert case.pins is not None and case.interleave is not None
    on, graph = case.pins.on_axes, case.graph
    plan = Plan(
        **on,
        microbatches=graph.batch // graph.microbatch // on["dp"],
        layers_per_stage=-(-graph.repeat // on["pp"]),
        interleave=case.interleave,
        zero=case.zero or None,
        placement=Placement(**case.place) if case.place else None,
    )
    kernels = tuple(
        KernelMapping(name=kernel.name, partition=place, sharding=case.pins.sharding.get(kernel.name, "none"))
        for place, kernel in enumerate(graph.kernels)
    )
    rows = max(kernel.n for kernel in graph.kernels)
    return Mapping(graph=graph.name, system=case.system.name, plan=plan, kernels=kernels, tile_count=rows)


def judged(row: Row, files: Path, folder: Path) -> Score:
    """The score of a row's execution; `DfoptError` if it cannot be said."""
    path = folder / "execution.json"
    path.write_text(json.dumps(execution(row)), encoding="utf-8")
    case = load_case(files / f"{row['model']}.json", files / f"{row['system']}.json", path)
    return evaluate(mapping_of(case), case.graph, case.system, case.assumptions)


def errors(row: Row, score: Score) -> Seen:
    """Relative errors of a row."""
    step, memory = float(row["total_time_s"]), float(row["mem_tier1_req_B"])
    ours, busy = dict(score.breakdown), dict(score.link_time)
    held = max(max(map(one.held_in, one.states)) for one in score.stages)
    return Seen(
        _bar(row),
        row["variant"],
        score.step_time_s / step - 1,
        {name: (ours[mine] - float(row[name])) / step for name, mine in PARTS.items()}
        | {name: (busy[mine] - float(row[name])) / step for name, mine in LINKS.items() if name in row},
        held / memory - 1,
    )


def _bar(row: Row) -> str:
    """Which bar a row is about."""
    behind = row["data_par_overlap"] == "true"
    if row["tensor_par_overlap"] == "none":
        return "" if behind else "A1"
    return "A4" if row.get("dp_exposed_gt_link", "false") == "false" else ""


def compared(rows: list[Row], files: Path) -> tuple[list[Seen], Counter[str]]:
    """Errors of the rows that can be taken, and how often each reason keeps one from that."""
    seen, refused = list[Seen](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            try:
                seen.append(errors(row, judged(row, files, Path(folder))))
            except DocumentError as error:
                refused[f"{row['variant']}: {'; '.join(f'{one.where}: {one.message}' for one in error.issues)}"] += 1
            except DfoptError as error:
                refused[f"{row['variant']}: {str(error).splitlines()[-1].strip()}"] += 1
    return seen, refused


def lines(seen: list[Seen], refused: Counter[str]) -> Iterator[Line]:
    """What is printed: each bar over all its rows and by variant, then memory; then what was not taken."""
    for bar in sorted({one.bar for one in seen}, key=lambda bar: bar or "Z"):
        rows = [one for one in seen if one.bar == bar]
        variants: dict[str, list[Seen]] = defaultdict(list)
        for one in rows:
            variants[one.variant].append(one)
        several = {f"all {len(variants)} variants": rows} if len(variants) > 1 else {}
        for variant, mine in {**variants, **several}.items():
            name = f"{variant} ({len(mine)} rows)"
            yield Line(f"{bar or 'beside'}, {name}, step time", spread([one.step for one in mine]), "", None)
            for part in (*PARTS, *LINKS):
                of = [one.parts[part] for one in mine if part in one.parts]
                if any(of):
                    parts = "A2" if bar == "A1" else "beside"
                    yield Line(f"{parts}, {name}, {part} of the step", spread(of), "", None)
            memory = "A3" if bar == "A1" else "beside"
            yield Line(f"{memory}, {name}, tier-1 memory", spread([one.memory for one in mine]), "", None)
    for reason, count in refused.items():
        yield Line("not taken", f"{count} rows: {reason}", "", None)


def spread(signed: list[float]) -> str:
    """Mean, median and largest error, and the mean with its sign."""
    sizes = [abs(one) for one in signed]
    return f"mean {fmean(sizes):.2%}, median {median(sizes):.2%}, max {max(sizes):.2%}, bias {fmean(signed):+.2%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--files", type=Path, default=FILES, help="folder of MODEL.json and SYSTEM.json")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with asked.csv.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return told(list(lines(*compared(rows, asked.files))), asked.json)


if __name__ == "__main__":
    sys.exit(main())
