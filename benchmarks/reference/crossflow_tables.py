"""Tables of what DeepFlow's predictor of 2021 printed for one chip, held against ``crossflow/``."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from crossflow.chip import PRECISION, Chip, chip_of
from crossflow.gemm import dataflow, products
from crossflow.language_model import Model, step_time
from line import Line

from dfopt.errors import DocumentError, Issue

WITHIN = 1e-6
BASES = "age_derived_parameters.json"
"""Beside every table: the configurations of the program by name."""
VARIANTS: Mapping[str, tuple[Mapping[str, float], int]] = {
    "shipped": ({}, PRECISION),
    "fp32": ({}, 4),
    "shipped_u0.85_l2u0.45": ({}, PRECISION),
    # of the authors' script for products of matrices
    "gemmval_u0.90_l2u0.63": ({"core": 0.9, "SRAM-L2": 0.63}, PRECISION),
}
"""Utilisations by part that a variant changes, and its bytes per element."""


def bases(beside: Path) -> dict[str, Any]:
    """The configurations beside a table."""
    file = beside.parent / BASES
    if not file.is_file():
        raise DocumentError(str(file), [Issue("$", "there is no such file", f"{beside.name} needs its base_inputs")])
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["base_inputs"]
    return found


def variant_of(configs: Mapping[str, Any], device: str, variant: str) -> Chip:
    config = deepcopy(configs[device])
    utils, precision = VARIANTS[variant]
    for part, value in utils.items():
        config["tech_param"][part]["util"] = value
    return chip_of(config, device, precision)


def gemm(file: Path) -> Iterator[Line]:
    """Products of matrices on one chip."""

    def seconds(chip: Chip, row: dict[str, str]) -> float:
        shape = int(row["M"]), int(row["K"]), int(row["N"])
        return products(chip, [shape], dataflow(chip, shape))[0]

    return _held(file, "products of matrices on one", "pred_total_s", seconds)


def language_model(file: Path) -> Iterator[Line]:
    """Training steps of the language model on one chip."""

    def seconds(chip: Chip, row: dict[str, str]) -> float:
        sizes = (int(row[name]) for name in ("batch", "seq", "hidden", "vocab", "layers"))
        return step_time(chip, Model(*sizes))

    return _held(file, "LSTM language model on one", "pred_s", seconds)


def _held(file: Path, what: str, column: str, seconds: Callable[[Chip, dict[str, str]], float]) -> Iterator[Line]:
    configs = bases(file)

    @cache
    def chip(device: str, variant: str) -> Chip:
        return variant_of(configs, device, variant)

    with file.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if int(row.get("gpus", 1)) == 1]
    if not rows:
        return
    began = time.process_time()  # of the processor: the same on a busy machine
    apart = [abs(seconds(chip(row["device"], row["variant"]), row) / float(row[column]) - 1) for row in rows]
    took = (time.process_time() - began) / len(rows)
    equal = sum(difference <= WITHIN for difference in apart)
    devices = " and ".join(sorted({row["device"] for row in rows}))
    seen = f"{equal} of {len(rows)} within {WITHIN:g}, worst {max(apart):.1e}, {took * 1e3:.1f} ms each"
    yield Line(f"{what} {devices}", seen, f"all within {WITHIN:g}", equal == len(rows))
