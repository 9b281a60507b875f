"""The runner of DeepFlow's tables, on the rows that are kept here."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
import sys
from pathlib import Path

import benchmark_path  # noqa: F401
import pytest
from by_path import module_at

from dfopt.setting.orders import Orders
from dfopt.setting.shares import shares

TESTS = Path(__file__).parents[1]
REFERENCE = TESTS.parent / "benchmarks" / "reference"
RUNNER = module_at(REFERENCE / "deepflow.py")
SWEEPS, SEATS = sys.modules["sweep_tables"], sys.modules["seats"]
GOLDEN = TESTS / "golden" / "deepflow"


def test_every_table_of_a_folder_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert RUNNER.main([str(GOLDEN), "--json"]) == 0
    sharing, derate, chosen, listed, *predictions = json.loads(capsys.readouterr().out)
    assert sharing["seen"].startswith("59 of 59 layouts equal") and sharing["met"]
    assert derate["met"] is None
    assert chosen["seen"].endswith("heavier for 0") and chosen["met"]
    assert listed["seen"].startswith("as fast as 1080 of 1080 orders") and listed["met"]
    assert [line["seen"].split(",")[0] for line in predictions] == [
        "16 of 16 within 1e-06", "16 of 16 within 1e-06", "12 of 12 within 1e-06",
    ]  # fmt: skip
    assert all(line["met"] for line in predictions)


@pytest.mark.parametrize("missing", ["blocks", "nestings"])
def test_orders_are_faster_than_placements_that_leave_something_out(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rings around blocks, and parallelisms as neighbours in every order: both are needed."""
    mixes = [
        (SEATS.strategy(k1=2, data=8), SEATS.Mesh(4)),
        (SEATS.strategy(k1=2, k2=2, data=2, pipeline=2), SEATS.Mesh(4)),
    ]
    assert all(RUNNER.orders_met(mixes, [1.0]))
    if missing == "blocks":
        monkeypatch.setattr(Orders, "ways", lambda self, dims: list(itertools.permutations(dims)))
    else:
        menu = sys.modules["placement_menu"]
        monkeypatch.setattr(menu, "shares", lambda dims, parts, _, axes: shares(dims, parts, axes=axes))
    assert not all(RUNNER.orders_met(mixes, [1.0]))


@pytest.mark.parametrize(
    ("name", "column", "seen"),
    [
        ("placement_link_sharing.csv", "max_sharing_intra_link", "58 of 59 layouts equal"),
        ("crossflow2021_p4_gemm.csv", "pred_total_s", "15 of 16 within"),
        ("crossflow2021_v100_gemm.csv", "pred_total_s", "15 of 16 within"),
        ("crossflow2021_v100_lm.csv", "pred_s", "11 of 12 within"),
    ],
)
def test_a_changed_figure_is_seen(
    name: str,
    column: str,
    seen: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RUNNER, "PORTS", ())  # that table is not looked at here
    shutil.copy(GOLDEN / "age_derived_parameters.json", tmp_path)
    with (GOLDEN / name).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    figure = rows[0][column]
    rows[0][column] = str(int(figure) + 1 if figure.isdigit() else float(figure) * (1 + 2e-6))
    with (tmp_path / name).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert RUNNER.main([str(tmp_path)]) == 1
    assert seen in capsys.readouterr().out


def test_stored_sweeps_are_of_chips_that_are_derived_here(tmp_path: Path) -> None:
    """Rows of two nodes with two links, and of chips whose package has power that no file says (`siif`)."""
    for file in (GOLDEN / "sweeps" / "repo_stored_lm_sweeps.csv", GOLDEN / "age_derived_parameters.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    file = tmp_path / "repo_stored_lm_sweeps.csv"
    (derived,) = RUNNER.chips(file)
    assert derived.seen.startswith("peak, DRAM rate and L2 size of 4 of 6 points equal as printed")
    assert "siif-energy_per_flop in peak" in derived.seen
    (predicted,) = RUNNER.data_parallel(file)
    assert predicted.seen.startswith("6 rows, ours over theirs 0.7")  # links of 48, 160 and 1396 GiB/s
    strategies = {(row["strategy"], row["kp1"], row["kp2"]): SWEEPS.taken(row) for row in SWEEPS.rows(file)}
    assert strategies["CR", "1", "1"] == (1, "none") and strategies["CR", "4", "1"] == (4, "k>n")
    assert strategies["RC", "2", "2"].startswith("rows of products") and "fit the L2" in strategies["RC", "1", "8"]


@pytest.mark.parametrize(
    ("tables", "said"),
    [([], "found none of placement_link_sharing.csv"), (["crossflow2021_p4_gemm.csv"], "needs its base_inputs")],
)
def test_a_folder_without_its_tables_is_refused(
    tables: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in tables:
        shutil.copy(GOLDEN / name, tmp_path)
    assert RUNNER.main([str(tmp_path)]) == 3
    assert said in capsys.readouterr().err
