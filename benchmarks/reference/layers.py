"""Measured layers on one chip against the model: forward and backward, without communication.

    python benchmarks/reference/layers.py CALIBRATION.yaml... [--layers CSV] [--rows]

The table is ``layers`` of ``measure_chip.py``, by default the committed one of an H100. Every layer is a decoder of one
layer with the features of a chip of TP; the model's time is its forward and backward work. Of the runs of a layer with
the same kernels (``how``: eager or compiled, ``library``: whose attention) the mean.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean

from dfopt.calibration.machines import machine_of
from dfopt.documents.calibration import Calibration
from dfopt.errors import DfoptError
from dfopt.search import solve
from dfopt.workloads import WORKLOADS

LAYERS = Path(__file__).parent / "data" / "h100_torch_layers.csv"
SIZES = ("hidden", "heads", "kv_heads", "head_dim", "ffn", "gated", "seq", "samples")


def seconds_of(sizes: tuple[str, ...], calibration: Calibration) -> float:
    """Seconds of a layer's passes under a calibration of the H100."""
    said = dict(zip(SIZES, sizes, strict=True))
    gated = said.pop("gated") == "True"
    samples = int(said.pop("samples"))
    shape = {name: int(value) for name, value in said.items()}
    graph = WORKLOADS["decoder"](
        **shape, layers=1, vocab=1000, ends=False, gated_mlp=gated, rotary=gated, causal=True, microbatch=samples,
        batch=samples, norm="rmsnorm" if gated else "layernorm", mode="training", recompute="attention",
    )  # fmt: skip
    system = calibration.applied(machine_of("h100", 1, memory_limit=False))
    found = solve(graph, system, assumptions=calibration.assumptions, tp=1, pp=1, dp=1, sensitivity=False)
    parts = found.score.breakdown
    assert parts is not None
    return parts.forward_s + parts.backward_s + parts.recompute_s


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibrations", nargs="+", type=Path, metavar="CALIBRATION")
    parser.add_argument("--layers", type=Path, default=LAYERS, metavar="CSV")
    parser.add_argument("--rows", action="store_true", help="print every layer")
    asked = parser.parse_args(words)
    measured: dict[tuple[str, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with asked.layers.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            kernels = f"{row['how']} {row['library']}"
            measured[tuple(row[name] for name in SIZES)][kernels].append(float(row["latency_ms"]) / 1e3)
    for path in asked.calibrations:
        try:
            calibration = Calibration.load(path)
            errors: dict[str, list[float]] = defaultdict(list)
            for sizes, ways in measured.items():
                ours = seconds_of(sizes, calibration)
                for kernels, runs in ways.items():
                    errors[kernels].append(ours / mean(runs) - 1)
                    if asked.rows:
                        print(
                            f"{' '.join(sizes):48} {kernels:16} {mean(runs) * 1e3:8.2f} ms {errors[kernels][-1]:+7.1%}"
                        )
        except DfoptError as error:
            print(error, file=sys.stderr)
            return 3
        for kernels, found in errors.items():
            far = max(map(abs, found))
            line = f"{len(found):3} layers: mean {mean(map(abs, found)):.1%}, max {far:.1%}, bias {mean(found):+.1%}"
            print(f"{path.stem:18} {kernels:16} {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
