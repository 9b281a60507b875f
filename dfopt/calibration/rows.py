"""Tables of measured training steps: three forms, known by their columns, as rows of one kind.

``iter_time_s``: published results with their mappings, seconds of a step. ``iter_time_ms``: the validation data of
vTrain (Bang et al., MICRO 2024). ``reported_quantity``: throughput as vendors publish it, with ``recipe_*`` columns
for what the recipe of a run says (:mod:`dfopt.calibration.reported`). An empty cell is not stated.

No table says how attention was computed, but some rows do in a note. A100 runs of GPT models that say nothing of it
have a kernel for each product and a softmax and a dropout of scores between them, as Megatron-LM had before
FlashAttention (2022); on later chips a library does it at once, and skips what a causal mask hides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dfopt.calibration.machines import CHIPS
from dfopt.calibration.reported import reported
from dfopt.calibration.row import (
    AS_GIVEN,
    Cannot,
    Cells,
    Sequence,
    TrainingRow,
    Untaken,
    degrees,
    maybe,
    measured,
    model_of,
    number,
    types_of,
)
from dfopt.documents.files import read_bytes
from dfopt.documents.table import read_table
from dfopt.errors import refuse


def read_rows(path: str | Path) -> list[TrainingRow | Untaken]:
    """All rows of a table of language-model training runs; `DocumentError` for an unknown format.

    Rows of other workloads are left out.
    """
    columns, table = read_table(path)
    form = next((read for needed, read in _FORMS if needed in columns), None)
    if form is None:
        wanted = ", ".join(needed for needed, _ in _FORMS)
        refuse(str(path), f"found columns {', '.join(sorted(columns)) or 'none'}, expected one of {wanted}",
               "give a table of measured training steps")  # fmt: skip
    rows = [cells for cells in table if cells.get("workload", "LLM-train") == "LLM-train"]
    parsed: list[TrainingRow | Untaken] = []
    for count, cells in enumerate(rows, start=1):
        name, source = _called(cells, count)
        try:
            parsed.append(form(cells, name, source))
        except Cannot as why:
            parsed.append(Untaken(name, source, str(why)))
    return parsed


def digest_of(path: str | Path) -> str:
    """SHA-256 of a file as hexadecimal text."""
    return hashlib.sha256(read_bytes(path)).hexdigest()


def _called(cells: Cells, count: int) -> tuple[str, str]:
    """Name and source of a row."""
    if "iter_time_ms" in cells:
        words = (f"{axis}{cells[axis]}" for axis in ("tp", "pp", "dp"))
        return f"vtrain-{count} {' '.join(words)} mb{cells['microbatch']}", "vTrain"
    if "id" in cells:
        return cells["id"], cells["source"]
    name = f"{count} {cells['model']} {cells['gpus']}x{cells['seq']}"
    return name, f"{cells['source_url'].split('//')[-1].split('/blob/')[0]} {cells['system'].split(' ')[0]}"


def _published(cells: Cells, name: str, source: str) -> TrainingRow:
    """A row of published results."""
    if not cells["status"].startswith("confirmed"):
        raise Cannot(f"status: {cells['status'][:40] or 'not stated'}")
    chips = number(cells, "n_accel")
    called = cells["accelerator"]
    chip = next((chip for chip, entry in CHIPS.items() if called in entry.get("accelerators", ())), None)
    if chip is None:
        raise Cannot(f"chip {called or 'not stated'}")
    given = AS_GIVEN.search(source) is not None
    recomputed: dict[str, str | None] = {"full": "full", "selective(attn)": "attention", "none": "none", "": None}
    by_ops = ("selective", "selective(per-op)") if given else ()  # where no number of layers is said
    recomputed |= dict.fromkeys(by_ops, "op+attention")
    if cells["recompute"] not in recomputed:
        raise Cannot(f"recompute {cells['recompute']}")
    sequence_parallelism: dict[str, Sequence] = {"true": "allow", "false": "none"}
    sequence = sequence_parallelism.get(cells["seq_par"])
    if source.startswith("Narayanan"):
        sequence = "none"  # Korthikanti et al. (arXiv:2205.05198) introduced it a year later
    sharded = cells["sharding"]
    if sharded and sharded.split(" ")[0] not in ("FSDP", "DDP"):
        raise Cannot(f"sharding {sharded}")
    model = model_of(cells, "seq_len", measured(cells, "params_B") * 1e9)
    again = recomputed[cells["recompute"]]
    flash = not chip.startswith("a100") or "flash" in cells.get("notes", "").lower()
    tensor, pipeline, copies, contexts = degrees(cells, chips)
    asynchronous = "async" in cells.get("notes", "").lower()
    silent = not sharded and not chip.startswith("a100")  # Megatron-LM's kin have had it since
    return TrainingRow(
        name, source.split(" (")[0], model, chip, chips, tensor, pipeline, copies, batch=number(cells, "global_batch"),
        seconds=measured(cells, "iter_time_s"), dtypes=types_of(cells["precision"], not given), contexts=contexts,
        microbatch=maybe(cells, "microbatch"), interleave=maybe(cells, "interleave"),
        recompute=_in_a_library(again) if flash else again, sequence_parallelism=sequence,
        zero=3 if sharded.startswith("FSDP") else 0 if sharded.startswith("DDP") else None,
        library_attention=flash, causal=flash, scores_dropout=not flash and not model.gated_mlp,
        overlaps_gradients=sharded.startswith("FSDP"),
        overlaps_tensor=False if tensor == 1 else None if silent else asynchronous,
    )  # fmt: skip


def _in_a_library(again: str | None) -> str | None:
    """What is computed again where a library's attention keeps no scores: they always are."""
    ways: dict[str, str] = {"none": "attention", "full": "full+attention"}
    return None if again is None else ways.get(again, again)


_VTRAIN_BETWEEN: Final = 12.5e9
"""B/s of a chip: 800 Gb/s of a node of eight, the simulation configurations beside vTrain's measurements say."""


def _vtrain(cells: Cells, name: str, source: str) -> TrainingRow:
    """A row of vTrain, whose simulated configurations say: all recomputed, 1F1B; vocabulary 51200 is an assumption."""
    chips = number(cells, "n_gpus")
    tensor, pipeline, copies, _ = degrees(cells, chips)
    return TrainingRow(
        name, source, model_of(cells, "seq_len", measured(cells, "params_B") * 1e9), "a100", chips, tensor, pipeline,
        copies, batch=number(cells, "global_batch"), seconds=measured(cells, "iter_time_ms") / 1e3,
        microbatch=number(cells, "microbatch"), interleave=1, recompute="full", sequence_parallelism="none",
        scores_dropout=True, between=_VTRAIN_BETWEEN,
    )  # fmt: skip


_FORMS: Final[tuple[tuple[str, Callable[[Cells, str, str], TrainingRow]], ...]] = (
    ("iter_time_s", _published),
    ("iter_time_ms", _vtrain),
    ("reported_quantity", reported),
)
