"""Claims about whole studies, swept as users sweep them, with other assumptions and into a folder that goes away."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from claims.rows import HERE, Asked, Row, run
from dfopt.studies.frame import SOLVED

SAME = 1e-6
GAP = 1e-3


def swept(name: str, asked: Asked, **changed: str) -> tuple[pd.DataFrame, float, str]:
    """The frame of a study under some assumptions changed, seconds on the clock, and what ran.

    All cells, or, where only some are asked for, those of its first chip, memory and link.
    """
    data: dict[str, Any] = yaml.safe_load((HERE / "studies" / f"{name}.yaml").read_text(encoding="utf-8"))
    for one in data["assumptions"]:
        one["set"] = one.get("set", {}) | changed
    for one in data["systems"] if asked.most is not None else []:
        one |= {axis: one[axis][:1] for axis in ("chips", "memories", "links")}
    data.pop("claims", None)  # those are about other assumptions
    rules = ", ".join(f"{key}={value}" for key, value in changed.items()) or "as it is"
    with tempfile.TemporaryDirectory() as folder:
        study, csv = Path(folder) / f"{name}.yaml", Path(folder) / f"{name}.csv"
        study.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        store = ["--store", str(Path(folder) / "runs.jsonl")]  # of nothing: every cell is solved
        words = ["-m", "dfopt", "sweep", "-q", str(study), *store, "--csv", str(csv)]
        done = run(words)
        if done.code != 0:
            raise RuntimeError(f"sweep of {name} ended with {done.code}: {done.err[-300:]}")
        frame = pd.read_csv(csv)
    return frame, done.seconds, f"`dfopt sweep {name}.yaml`, {rules}, {len(frame)} cells"


def dse(asked: Asked) -> Iterator[Row]:
    """The design space of DFModel, sharding and fusion together against one after the other as the study has them."""
    levels, before, _ = swept("dse", asked)
    joint, seconds, ran = swept("dse", asked, sharding_objective="joint")
    axes = [name for name in ("graph", "chip", "memory", "link", "topology") if name in joint]
    both = joint.merge(levels, on=axes, suffixes=("", "_levels"), validate="one_to_one")
    ratio = both["step_time_s"] / both["step_time_s_levels"]
    faster, slower = int((ratio < 1 - SAME).sum()), int((ratio > 1 + SAME).sum())
    equal = int((abs(ratio - 1) <= SAME).sum())
    seen = f"{faster} faster (least {ratio.min():.4f}), {equal} equal, {slower} slower"
    whole = faster + equal == len(joint) == len(levels)
    yield Row("design space", ran, seen, "none slower, every cell answered", whole)
    gaps = int((joint["gap"] > GAP).sum())
    seen = f"{seconds:.0f} s on the clock (one after the other {before:.0f} s), {gaps} cells with a gap above {GAP:g}"
    yield Row("time, design space", ran, seen, "60 s", seconds <= 60.0)


def best_plans(asked: Asked) -> Iterator[Row]:
    """The best of all plans on every machine of the design space, all of it proven or close."""
    frame, seconds, ran = swept(
        "best-plans", asked, sharding_objective="joint", sequence_parallelism="none", execution="chip"
    )
    yield Row("time, best plans", ran, f"{seconds:.0f} s on the clock", "600 s", seconds <= 600.0)
    for graph, cells in frame.groupby("graph", sort=False):
        solved = cells[cells["status"].isin(SOLVED)]
        infeasible = int((cells["status"] == "infeasible").sum())
        above = int((solved["gap"] > GAP).sum())
        largest = solved["gap"].max() if len(solved) else 0.0
        seen = f"{above} of {len(solved)} answers with a gap above {GAP:g}, largest {100 * largest:.3g} %"
        seen += f", {infeasible} infeasible" if infeasible else ""
        lost = len(cells) - len(solved) - infeasible
        seen += f", {lost} without an answer" if lost else ""
        most = 0.02 if graph == "dlrm-793b" else GAP
        met = largest <= most and not lost
        yield Row("gaps, best plans", f"{graph}, {len(cells)} cells", seen, f"{100 * most:g} %", met)
