"""The runners that hold what others measured or computed against dfopt: on rows copied from their tables."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import ModuleType

import pytest
from by_path import module_at, ran

from dfopt.documents.routing import Routing

ROOT = Path(__file__).resolve().parents[2]
REFERENCE, GOLDEN = ROOT / "benchmarks" / "reference", ROOT / "tests" / "golden"


def runner(name: str) -> ModuleType:
    return module_at(REFERENCE / f"{name}.py")


def rows_of(name: str) -> list[dict[str, str]]:
    with (GOLDEN / f"{name}.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    return runner("kernels")


@pytest.fixture(scope="module")
def all_to_all() -> ModuleType:
    return runner("all_to_all")


@pytest.mark.parametrize(("table", "nearest"), [("moe", 0.9), ("mla", 0.94), ("attention", 0.8), ("gemm", 0.9)])
def test_what_is_least_is_below_what_was_measured_and_near_it(kernels: ModuleType, table: str, nearest: float) -> None:
    ratios = [kernels.least_seconds(row) * 1e3 / float(row["latency_ms"]) for row in rows_of(f"serving/{table}")]
    assert nearest < max(ratios) <= 1.0
    assert min(ratios) > 0.05


def test_the_least_of_experts_is_a_count_by_hand(kernels: ModuleType) -> None:
    """Llama 4 Maverick, 512 tokens on four chips: all 32 experts of one are read, in 3.35 TB/s."""
    row = {
        "system": "h100_sxm", "model": "Llama-4-Maverick", "moe_dtype": "bfloat16", "num_tokens": "512",
        "hidden_size": "5120", "inter_size": "8192", "topk": "1", "num_experts": "128", "moe_tp_size": "1",
        "moe_ep_size": "4", "distribution": "balanced",
    }  # fmt: skip
    read = 32 * 3 * 5120 * 8192 * 2 + 128 * 5120 * 2 * 2  # weights; tokens in and out
    assert kernels.least_seconds(row) == pytest.approx(read / 3350e9, rel=1e-9)
    few = kernels.least_seconds(row | {"num_tokens": "16"})  # 4 tokens on the chip touch 4 experts
    assert few == pytest.approx((4 * 3 * 5120 * 8192 * 2 + 4 * 5120 * 4) / 3350e9, rel=1e-9)
    plain = kernels.least_seconds(row, plain=["Llama-4-Maverick"])
    assert plain == pytest.approx((read - 32 * 5120 * 8192 * 2) / 3350e9, rel=1e-9)


def test_skewed_rows_are_priced_under_their_own_distribution(kernels: ModuleType) -> None:
    """With uniform routing the first is above what was measured, 27 of 32 experts whose tokens chance deals out too."""
    row = next(row for row in rows_of("serving/moe") if (row["num_tokens"], row["moe_ep_size"]) == ("4", "1"))
    assert row["distribution"] == "power_law_1.2" and row["system"] == "a100_sxm"
    assert kernels.least_seconds(row | {"distribution": "uniform"}) * 1e3 > 1.1 * float(row["latency_ms"])
    by_chance = Routing.model_validate("power_law(1.2)").touched(256, 8, 4)
    touched = kernels.moe(row).kernels[0].experts.touched
    assert touched == 19 < by_chance < 28  # that get a whole token


def test_what_is_not_priced_is_left_out(kernels: ModuleType) -> None:
    with pytest.raises(kernels.Unknown, match="nvfp4"):
        kernels.least_seconds(rows_of("serving/moe")[0] | {"moe_dtype": "nvfp4"})
    with pytest.raises(kernels.Unknown, match=r"power_law_1\.2_balanced"):
        kernels.least_seconds(rows_of("serving/moe")[0] | {"distribution": "power_law_1.2_balanced"})
    with pytest.raises(kernels.Unknown, match="b300_sxm fp8"):  # whose peak is one number for all types
        kernels.least_seconds(rows_of("serving/gemm")[0] | {"system": "b300_sxm", "gemm_dtype": "fp8"})
    with pytest.raises(kernels.Unknown, match="context"):
        kernels.least_seconds(rows_of("serving/mla")[0] | {"phase": "context"})


@pytest.mark.parametrize("table", ["moe_all_to_all", "deepep_low_latency", "deepep_normal"])
def test_no_exchange_is_faster_than_its_links(all_to_all: ModuleType, table: str) -> None:
    rows = rows_of(f"serving/{table}")
    ratios = [one.least_seconds() / one.seconds for row in rows for one in all_to_all.exchanges(row)]
    assert 0.5 < max(ratios) <= 1.0


def test_the_least_of_an_exchange_is_a_count_by_hand(all_to_all: ModuleType) -> None:
    row = next(row for row in rows_of("serving/deepep_normal") if (row["node_num"], row["num_token"]) == ("8", "65536"))
    out, back = all_to_all.exchanges(row)
    # of 128 experts on four of the nodes eight are chosen: 96 of them are not on a given one
    missed = 1.0
    for chosen in range(8):
        missed *= (96 - chosen) / (128 - chosen)
    nodes = 4 * (1 - missed) * 7 / 8  # the sender's own is one of eight
    assert out.least_seconds() == pytest.approx(65536 * nodes * 7168 / 50e9, rel=1e-9)
    assert back.least_seconds() == pytest.approx(2 * out.least_seconds(), rel=1e-9)


def test_an_alpha_and_a_rate_foretell_the_sizes_that_were_not_fitted(all_to_all: ModuleType) -> None:
    group = [one for row in rows_of("serving/moe_all_to_all") for one in all_to_all.exchanges(row)]
    fit = all_to_all.fitted(group)
    assert fit.rows == 65 and 50 < fit.alpha_us < 90 and 300 < fit.gb_per_s < 450
    assert fit.held_out_error < 0.15
    exact = [all_to_all.Exchange(**{**vars(one), "seconds": 2e-5 + one.sent_bytes / 3e11}) for one in group]
    fit = all_to_all.fitted(exact)
    assert (fit.alpha_us, fit.gb_per_s) == pytest.approx((20.0, 300.0)) and fit.held_out_error < 1e-9
    falling = [all_to_all.Exchange(**{**vars(one), "seconds": 1.0 / one.sent_bytes}) for one in group]
    fit = all_to_all.fitted(falling)
    assert fit.gb_per_s is None and fit.alpha_us > 0


FUSED = runner("fused")
BARS = {"ag_gemm": 0.040, "gemm_rs": 0.144, "moe_reduce": 0.072, "ulysses": 0.100}


def test_errors_of_44_kernels() -> None:
    errors = FUSED.errors(rows_of("deepstack/fig08_h100_kernels"))
    assert {kind: count for kind, (count, _, _) in errors.items()} == {
        "ag_gemm": 12, "gemm_rs": 12, "moe_reduce": 8, "ulysses": 12,
    }  # fmt: skip
    assert all(errors[kind][1] <= bar for kind, bar in BARS.items()), errors
    # Where the shape says as many waves as the file, the plain formula is theirs.
    assert abs(errors["ag_gemm"][1] - errors["ag_gemm"][2]) < 1e-6


def test_executions_are_compared_part_by_part() -> None:
    """Without overlap steps are those of Calculon, with all-reduces in every part; with overlap they are near."""
    code, out, err = ran(REFERENCE / "calculon.py", GOLDEN / "calculon" / "executions.csv", "--json")
    assert code == 0, err
    found = {line["table"]: line["seen"] for line in json.loads(out)}
    most = {name: float(told.split("max ")[1].split("%")[0]) for name, told in found.items() if "max " in told}
    for variant in ("full_ar", "none_ar"):
        parts = {name: error for name, error in most.items() if name.startswith(f"A2, {variant} ")}
        # there what a chip does for a collective counts as time on a link
        work = [parts.pop(name) for name in list(parts) if "tp_comm_link_time_s" in name]
        assert len(parts) > 5 and max(parts.values()) < 0.02 and max(work) < 2.2
        assert most[f"A1, {variant} (1 rows), step time"] < 0.02
    for variant in ("attn_rsag_redo", "attn_rsag_redo_int"):
        assert most[f"A1, {variant} (1 rows), step time"] < 0.5
    assert most["A4, full_rsag_ovl (1 rows), step time"] < 1
    assert "not taken" not in found
    for variant in ("full_ar", "none_ar", "attn_rsag_redo", "attn_rsag_redo_int"):
        # bytes are that program's, but for rounding
        assert found[f"A3, {variant} (1 rows), tier-1 memory"].startswith("mean 0.00%, median 0.00%, max 0.00%")


RUNNER = REFERENCE / "measured.py"


def test_rows_are_judged_refused_and_left_out(tmp_path: Path) -> None:
    lines = (REFERENCE / "data" / "korthikanti_table5.csv").read_text(encoding="utf-8").splitlines()
    fits = lines[1].replace("t5_22B_full", "fits")
    huge = lines[1].replace("t5_22B_full", "huge").replace("22,48,6144,64,,24576", "176,48,17408,64,,69632")
    other = lines[1].replace("t5_22B_full", "other").replace("fp16", "int3")
    table, kept = tmp_path / "rows.csv", tmp_path / "rows.json"
    table.write_text("\n".join([lines[0], fits, fits, huge, other]) + "\n", encoding="utf-8")
    code, out, err = ran(RUNNER, table, "--json", kept)
    assert code == 0, err
    rows = json.loads(kept.read_text(encoding="utf-8"))
    assert [row["status"] for row in rows] == ["ok", "ok", "refused", "not taken"]
    assert {(row["quantity"], row["profile"]) for row in rows} == {("step_seconds", "default")}
    assert rows[0]["ratio"] == pytest.approx(rows[0]["ours"] / 1.42) and rows[0]["ours"] == rows[1]["ours"]
    assert "GB of DRAM per chip" in rows[2]["note"] and "int3" in rows[3]["note"]
    # 22e9 parameters x 4 samples x 2048 tokens: with all recomputed 8 FLOP each, at most at 8 x 312 TFLOP/s
    assert rows[0]["ours"] > 8 * 22e9 * 4 * 2048 / (8 * 312e12)
    assert "4 rows, 2 different steps" in out
    assert ran(RUNNER, table, "--no-memory-limit", "--json", kept)[0] == 0
    assert [row["status"] for row in json.loads(kept.read_text(encoding="utf-8"))][2] == "ok"


def test_a_file_that_is_no_table_ends_with_3(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("x\n1\n", encoding="utf-8")
    code, _, err = ran(RUNNER, table)
    assert code == 3 and "found columns x" in err and "Traceback" not in err
