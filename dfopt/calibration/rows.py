"""Tables of measured training steps: three forms, known by their columns, as rows of one kind.

``iter_time_s``: published results with their mappings, seconds of a step. ``iter_time_ms``: the validation data of
vTrain (Bang et al., MICRO 2024). ``reported_quantity``: throughput as vendors publish it, with ``recipe_*`` columns
for what the recipe of a run says. An empty cell is not stated.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dfopt.errors import refuse
from dfopt.workloads.recompute import Recompute

__all__ = ["Cannot", "Model", "TrainingRow", "Untaken", "digest_of", "read_rows"]

Cells = Mapping[str, str]
Chip = Literal["a100", "a100-40gb", "h100", "h100-hbm2e"]
Sequence = Literal["none", "allow"]

_WORDS: Final = {"fp16": 2, "bf16": 2, "amp_bf16": 2}
_CLOSE = 0.08  # relative: a stated number of parameters is rounded, and leaves out biases and norms


class Cannot(Exception):
    """Why a row is not taken."""


@dataclass(frozen=True)
class Model:
    """Sizes of a decoder, as the workload ``decoder`` has them."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    seq: int
    gated_mlp: bool
    tie_embeddings: bool

    @property
    def matrices(self) -> int:
        """Parameters of the matrices of all layers.

        Examples
        --------
        >>> Model(2, 64, 8, 8, 8, 256, 1000, 32, gated_mlp=False, tie_embeddings=True).matrices == 2 * 12 * 64**2
        True
        """
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + (3 if self.gated_mlp else 2) * self.hidden * self.ffn)

    @property
    def parameters(self) -> int:
        """The same, with embedding and logits."""
        return self.matrices + self.vocab * self.hidden * (1 if self.tie_embeddings else 2)

    def flop(self, samples: int) -> float:
        """FLOP of a training step without recomputation: three passes, scores in full (Narayanan et al., SC21, eq. 3).

        Examples
        --------
        Equation 3 counts a fourth pass, of what is recomputed; without it 72 B s l h^2 (1 + s/6h + V/12lh):

        >>> model = Model(2, 64, 8, 8, 8, 256, 1000, 32, gated_mlp=False, tie_embeddings=True)
        >>> round(model.flop(4) / (72 * 4 * 32 * 2 * 64**2 * (1 + 32 / (6 * 64) + 1000 / (12 * 2 * 64))), 12)
        1.0
        """
        scores = 4 * self.layers * self.heads * self.head_dim * self.seq
        return 3.0 * samples * self.seq * (2 * (self.matrices + self.vocab * self.hidden) + scores)


@dataclass(frozen=True)
class TrainingRow:
    """A measured step. None is what the source does not say; ``unmodelled`` what it says and the model has not."""

    name: str
    source: str
    model: Model
    chip: Chip
    chips: int
    tensor: int
    pipeline: int
    copies: int
    batch: int
    seconds: float
    word_bytes: int = 2
    microbatch: int | None = None
    interleave: int | None = None
    recompute: Recompute | None = None
    sequence_parallelism: Sequence | None = None
    zero: int = 0
    library_attention: bool = False
    causal: bool = False
    scores_dropout: bool = False
    overlaps_gradients: bool = False
    unmodelled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Untaken:
    """A row that is not taken, and why."""

    name: str
    source: str
    reason: str


def read_rows(path: str | Path) -> list[TrainingRow | Untaken]:
    """All rows of a table about training language models; `DocumentError` for a table of no known form.

    Rows of other workloads are left out.
    """
    with Path(path).open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        columns = set(reader.fieldnames or ())
        form = next((read for needed, read in _FORMS if needed in columns), None)
        if form is None:
            wanted = ", ".join(needed for needed, _ in _FORMS)
            refuse(str(path), f"found columns {', '.join(sorted(columns)) or 'none'}, expected one of {wanted}",
                   "give a table of measured training steps")  # fmt: skip
        rows = [cells for cells in reader if cells.get("workload", "LLM-train") == "LLM-train"]
    found: list[TrainingRow | Untaken] = []
    for number, cells in enumerate(rows, start=1):
        cells = {name: (text or "").strip() for name, text in cells.items() if name is not None}
        name, source = _called(cells, number)
        try:
            found.append(form(cells, name, source))
        except Cannot as why:
            found.append(Untaken(name, source, str(why)))
    return found


def digest_of(path: str | Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _called(cells: Cells, number: int) -> tuple[str, str]:
    """Name and source of a row."""
    if "iter_time_ms" in cells:
        degrees = (f"{axis}{cells[axis]}" for axis in ("tp", "pp", "dp"))
        return f"vtrain-{number} {' '.join(degrees)} mb{cells['microbatch']}", "vTrain"
    if "id" in cells:
        return cells["id"], cells["source"]
    name = f"{number} {cells['model']} {cells['gpus']}x{cells['seq']}"
    return name, f"{cells['source_url'].split('//')[-1].split('/blob/')[0]} {cells['system'].split(' ')[0]}"


def _number(cells: Cells, column: str) -> int:
    text = cells.get(column, "")
    try:
        return int(float(text))
    except ValueError:
        raise Cannot(f"{column} is not stated" if not text else f"{column}: found {text!r}, no number") from None


def _measured(cells: Cells, column: str) -> float:
    try:
        value = float(cells[column])
    except ValueError:
        raise Cannot(f"{column} is not stated") from None
    if not value > 0:
        raise Cannot(f"{column}: found {value:g}, expected more than 0")
    return value


def _maybe(cells: Cells, column: str) -> int | None:
    return _number(cells, column) if cells.get(column) else None


def _model(cells: Cells, seq: str, parameters: float) -> Model:
    """The decoder of such sizes: its MLP is gated, and its embedding tied, as its number of parameters says."""
    heads, hidden = _number(cells, "heads"), _number(cells, "hidden")
    head_dim = _maybe(cells, "head_dim") or hidden // heads
    shape = dict(
        layers=_number(cells, "layers"), hidden=hidden, heads=heads, kv_heads=_maybe(cells, "kv_heads") or heads,
        head_dim=head_dim, ffn=_maybe(cells, "ffn") or 4 * hidden, vocab=_maybe(cells, "vocab") or 51200,
        seq=_number(cells, seq),
    )  # fmt: skip
    kinds = [Model(**shape, gated_mlp=gated, tie_embeddings=tied) for gated in (False, True) for tied in (True, False)]
    closest = min(kinds, key=lambda model: abs(model.parameters / parameters - 1))
    if abs(closest.parameters / parameters - 1) > _CLOSE:
        counted = f"{closest.parameters / 1e9:.3g}e9 counted"
        raise Cannot(f"a decoder of these sizes has not {parameters / 1e9:.4g}e9 parameters: {counted}")
    return closest


def _degrees(cells: Cells, chips: int) -> tuple[int, int, int]:
    tensor, pipeline, copies = (_number(cells, axis) for axis in ("tp", "pp", "dp"))
    if tensor * pipeline * copies != chips:
        raise Cannot(f"tp {tensor} x pp {pipeline} x dp {copies} is not {chips} chips")
    return tensor, pipeline, copies


def _refuse_others(cells: Cells, precision: str) -> None:
    for column, of in (("cp", "contexts split over chips"), ("ep", "experts split over chips")):
        if (_maybe(cells, column) or 1) > 1:
            raise Cannot(f"{of} ({column} {cells[column]})")
    if cells.get("experts"):
        raise Cannot("mixture of experts")
    if precision.lower() not in _WORDS:
        raise Cannot(f"precision {precision or 'not stated'}")


def _published(cells: Cells, name: str, source: str) -> TrainingRow:
    """A row of published results."""
    if not cells["status"].startswith("confirmed"):
        raise Cannot(f"status: {cells['status'][:40] or 'not stated'}")
    chips = _number(cells, "n_accel")
    _refuse_others(cells, cells["precision"])
    known: dict[str, Chip] = {
        "A100-SXM4-80GB": "a100",
        "A100-80GB": "a100",
        "H100-SXM-80GB": "h100",
        "H100-96GB-HBM2e": "h100-hbm2e",
    }
    if cells["accelerator"] not in known:
        raise Cannot(f"chip {cells['accelerator'] or 'not stated'}")
    recomputed: dict[str, Recompute | None] = {"full": "full", "selective(attn)": "attention", "none": "none", "": None}
    if cells["recompute"] not in recomputed:
        raise Cannot(f"recompute {cells['recompute']}")
    said: dict[str, Sequence] = {"true": "allow", "false": "none"}
    sequence = said.get(cells["seq_par"])
    if source.startswith("Narayanan"):
        sequence = "none"  # Korthikanti et al. (arXiv:2205.05198) introduced it a year later
    sharded = cells["sharding"]
    if sharded and sharded.split(" ")[0] not in ("FSDP", "DDP"):
        raise Cannot(f"sharding {sharded}")
    return TrainingRow(
        name, source.split(" (")[0], _model(cells, "seq_len", _measured(cells, "params_B") * 1e9),
        known[cells["accelerator"]], chips, *_degrees(cells, chips), batch=_number(cells, "global_batch"),
        seconds=_measured(cells, "iter_time_s"), word_bytes=_WORDS[cells["precision"].lower()],
        microbatch=_maybe(cells, "microbatch"), interleave=_maybe(cells, "interleave"),
        recompute=recomputed[cells["recompute"]], sequence_parallelism=sequence,
        zero=3 if sharded.startswith("FSDP") else 0,
    )  # fmt: skip


def _vtrain(cells: Cells, name: str, source: str) -> TrainingRow:
    """A row of vTrain, whose simulated configurations say: all recomputed, 1F1B; vocabulary 51200 is an assumption."""
    chips = _number(cells, "n_gpus")
    return TrainingRow(
        name, source, _model(cells, "seq_len", _measured(cells, "params_B") * 1e9), "a100", chips,
        *_degrees(cells, chips), batch=_number(cells, "global_batch"), seconds=_measured(cells, "iter_time_ms") / 1e3,
        microbatch=_number(cells, "microbatch"), interleave=1, recompute="full", sequence_parallelism="none",
    )  # fmt: skip


def _reported(cells: Cells, name: str, source: str) -> TrainingRow:
    """A row of throughput, in one of several quantities."""
    if not cells["confidence"].startswith("read"):
        raise Cannot(f"confidence: {cells['confidence']}")
    chips = _number(cells, "gpus")
    _refuse_others(cells, cells["precision"])
    known: dict[str, Chip] = {"a100_80gb": "a100", "a100_40gb": "a100-40gb", "h100_80gb": "h100", "DGX-H100": "h100"}
    machine = cells["system"]
    chip = known.get(machine.split(" ")[0]) or ("h100-hbm2e" if "HBM2e" in machine else None)
    if chip is None and machine.startswith("H100 (Selene/EOS"):
        chip = "h100"
    if chip is None:
        raise Cannot(f"chip {machine}")
    model = _model(cells, "seq", _measured(cells, "params"))
    batch = _number(cells, "gbs")
    again, flash = cells["recompute"] or cells.get("recipe_recompute", ""), "FlashAttention" in cells["note"]
    known_ways: dict[str, Recompute | None] = {
        "full": "full+attention" if flash else "full",
        "none": "attention" if flash else "none",
        "": None,
    }
    if again not in known_ways:
        raise Cannot(f"recompute {again}")
    shared = _maybe(cells, "fsdp") or 0
    degrees = _degrees(cells, chips)
    if shared > 1 and shared != degrees[2]:
        raise Cannot(f"parameters shared by {shared} of {degrees[2]} copies")
    said: dict[str, Sequence] = {"True": "allow", "False": "none"}
    sequence = said.get(cells.get("recipe_sequence_parallel", ""))
    zero = 3 if shared > 1 else 1 if cells.get("recipe_distributed_optimizer") == "True" else 0
    overlaps = {"recipe_tp_comm_overlap": "TP overlap", "recipe_overlap_grad_reduce": "gradient overlap",
                "recipe_overlap_param_gather": "gather overlap", "recipe_overlap_p2p_comm": "p2p overlap"}  # fmt: skip
    unmodelled = [word for column, word in overlaps.items() if cells.get(column) == "True"]
    if "overlap on" in cells["note"] or shared > 1:
        unmodelled.append("overlap of communication")
    return TrainingRow(
        name, source, model, chip, chips, *degrees, batch=batch, seconds=_step(cells, model, batch, chips),
        microbatch=_maybe(cells, "mbs"), interleave=_maybe(cells, "vp"), recompute=known_ways[again],
        sequence_parallelism=sequence, zero=zero, unmodelled=tuple(unmodelled),
    )  # fmt: skip


def _step(cells: Cells, model: Model, batch: int, chips: int) -> float:
    """Seconds of a step, from the quantity that is reported."""
    value, quantity = _measured(cells, "value"), cells["reported_quantity"]
    if quantity == "step_time":
        return value
    if quantity == "tokens_per_s_per_gpu":
        return batch * model.seq / (value * chips)
    if quantity in ("model_tflops_per_gpu", "tflops_per_chip"):
        return model.flop(batch) / (value * 1e12 * chips)
    raise Cannot(f"reported quantity {quantity}")


_FORMS: Final[tuple[tuple[str, Callable[[Cells, str, str], TrainingRow]], ...]] = (
    ("iter_time_s", _published),
    ("iter_time_ms", _vtrain),
    ("reported_quantity", _reported),
)
