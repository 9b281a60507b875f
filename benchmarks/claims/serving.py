"""Claims about serving that measured rows of others show: bounds are never above them, and defaults are near."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

import pandas as pd

from claims.rows import HERE, Asked, Ran, Row, run, shown, without_data

DENSE, EXPERTS = "serving/aiconfigurator_silicon_llama3.csv", "serving/aic_silicon_moe_hybrid.csv"
KERNELS = ("serving/aic_moe_measured.csv", "serving/aic_mla_measured.csv")
EXCHANGES = tuple(
    f"serving/aic_{name}_measured.csv" for name in ("moe_all_to_all", "deepep_low_latency", "deepep_normal")
)
# The measurement of experts draws loads of this law (collector/helper.py of ai-dynamo/aiconfigurator).
LAW = "power_law(1.2)"
NEAR, EXPECTED = 0.03, 0.72
SAME = 1e-6
LEAST, MOST = 1042.0, 1188.0  # tokens per second of 16 SN40L: arXiv 2405.07518, and what DFModel's model gives


def _json(words: list[str]) -> tuple[Any, Ran]:
    """What a runner writes, and how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        done = run([*words, "--json", str(file)])
        if not file.is_file():
            raise RuntimeError(f"{shown(words)} ended with {done.code}: {done.err[-300:] or done.last}")
        return json.loads(file.read_text(encoding="utf-8")), done


def _said(rows: list[dict[str, Any]], done: Ran) -> str:
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    lost = f", {len(rows) - len(ratios)} infeasible" if len(ratios) < len(rows) else ""
    return f"{len(ratios)} rows{lost}: median {median(ratios):.3f}, at most {max(ratios):.3f} ({done.seconds:.0f} s)"


def bounds(asked: Asked) -> Iterator[Row]:
    """Free fusion at peak and without overheads against every measured row that fits, prompts and decode steps."""
    for table, more in ((DENSE, []), (EXPERTS, ["--routing", LAW])):
        for phase in ("decode", "prefill"):
            claim, limit = f"the bound is a bound, {phase}", "at most 1 on every row"
            if asked.reference is None:
                yield without_data(claim, table, limit)
                continue
            words = [str(HERE / "reference" / "serving.py"), str(asked.reference / table), "--phase", phase, "--bound"]
            rows, done = _json([*words, *more])
            met = done.code == 0 and all(row["ratio"] is None or row["ratio"] <= 1.0 for row in rows)
            yield Row(claim, shown([*words, *more]), _said(rows, done), limit, met)


def decode(asked: Asked) -> Iterator[Row]:
    """Decode steps of dense models under the default assumptions, and those of DFModel's logs."""
    limit = f"median within {100 * NEAR:g} % of {EXPECTED}"
    cases = "dfmodel/cases/fig20_decode_*.json"
    near = f"equal to {SAME:g}, or better where their solver had a gap; verified"
    if asked.reference is None:
        yield without_data("decode, measured", DENSE, limit)
        yield without_data("decode, DFModel", cases, near)
        return
    words = [str(HERE / "reference" / "serving.py"), str(asked.reference / DENSE), "--phase", "decode"]
    rows, done = _json(words)
    middle = median(row["ratio"] for row in rows if row["ratio"] is not None)
    met = done.code == 0 and abs(middle / EXPECTED - 1) <= NEAR
    yield Row("decode, measured", shown(words), _said(rows, done), limit, met)
    with tempfile.TemporaryDirectory() as folder:
        for file in sorted(asked.reference.glob(cases)):
            shutil.copy(file, folder)
        found, done = _json([str(HERE / "reference" / "dfmodel.py"), folder])
    seconds = [row for row in found if row["quantity"].startswith("seconds")]
    for row in seconds:
        equal = abs(row["ratio"] - 1) <= SAME if row["ratio"] else False
        seen = f"{row['ours']:.9g} s, reported {row['reported']:.9g}: {row['ours_is']}, {row['check']}"
        met = row["status"] == "ok" and row["check"] == "verified optimal" and (equal or row["ours"] < row["reported"])
        yield Row("decode, DFModel", row["case"], seen, near, met)
    if not seconds:
        yield Row("decode, DFModel", cases, f"no cases ({done.last})", near, None)


def kernels(asked: Asked) -> Iterator[Row]:
    """Measured products of experts and latent attention against what no mapping on one chip could beat."""
    for table in KERNELS:
        if asked.reference is None:
            yield without_data("kernels are bounds", table, "at most 1 on every row")
            continue
        words = [str(HERE / "reference" / "kernels.py"), str(asked.reference / table)]
        done = run(words)
        seen = f"{done.last} ({done.seconds:.0f} s)"
        yield Row("kernels are bounds", shown(words), seen, "at most 1 on every row", done.code == 0)


def all_to_all(asked: Asked) -> Iterator[Row]:
    """Measured dispatch and combine of experts: never faster than the links, and foretold by half of the sizes."""
    least, fit = "none above what was measured", "25 % on average on the sizes that were not fitted"
    if asked.reference is None:
        yield without_data("all-to-all, least", ", ".join(EXCHANGES), least)
        yield without_data("all-to-all, fit", ", ".join(EXCHANGES), fit)
        return
    words = [str(HERE / "reference" / "all_to_all.py"), *(str(asked.reference / table) for table in EXCHANGES)]
    fits, done = _json(words)
    rows = sum(one["rows"] for one in fits)
    yield Row("all-to-all, least", shown(words), f"exit code {done.code}, {rows} exchanges", least, done.code == 0)
    errors = [one["held_out_error"] for one in fits]
    seen = f"{mean(errors):.1%} on average over {len(errors)} groups, {max(errors):.0%} in the worst"
    yield Row("all-to-all, fit", "the same", seen, fit, mean(errors) <= 0.25)


def sn40l(asked: Asked) -> Iterator[Row]:
    """Decode of Llama 3.1 8B on sixteen SN40L between terms that add up and terms that overlap, and its trends."""
    study = HERE / "studies" / "fig20-decode.yaml"
    with tempfile.TemporaryDirectory() as folder:
        csv = Path(folder) / "frame.csv"
        words = ["-m", "dfopt", "sweep", "-q", str(study), "--store", str(Path(folder) / "runs.jsonl")]
        done = run([*words, "--csv", str(csv), "--json"])
        frame, claims = pd.read_csv(csv), json.loads(done.out)["claims"]
    one = frame[(frame["graph"] == "one sequence") & (frame["tensor"] == 16)].set_index("assumptions")["tokens_per_s"]
    ran = f"`dfopt sweep {study.name}`"
    yield Row("SN40L, no overlap", ran, f"{one['none']:.0f} tokens/s", f"at most {LEAST:g}", bool(one["none"] <= LEAST))
    most = bool(one["perfect"] >= MOST)
    yield Row("SN40L, perfect", ran, f"{one['perfect']:.0f} tokens/s", f"at least {MOST:g}", most)
    hold = sum(claim["holds"] is True for claim in claims)
    yield Row("SN40L, claims of the study", ran, f"{hold} of {len(claims)}", "6 of 6", hold == len(claims) == 6)
