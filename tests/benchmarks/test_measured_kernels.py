"""The runners that hold measured kernels and exchanges against what is least: on rows copied from the tables."""

from __future__ import annotations

import csv
from pathlib import Path
from types import ModuleType

import pytest
from by_path import module_at

from dfopt.documents.routing import Routing

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "tests" / "golden" / "serving"


def runner(name: str) -> ModuleType:
    return module_at(ROOT / "benchmarks" / "reference" / f"{name}.py")


def rows_of(name: str) -> list[dict[str, str]]:
    with (ROWS / f"{name}.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    return runner("kernels")


@pytest.fixture(scope="module")
def all_to_all() -> ModuleType:
    return runner("all_to_all")


@pytest.mark.parametrize(("table", "nearest"), [("moe", 0.9), ("mla", 0.94), ("attention", 0.8), ("gemm", 0.9)])
def test_what_is_least_is_below_what_was_measured_and_near_it(kernels: ModuleType, table: str, nearest: float) -> None:
    ratios = [kernels.least_seconds(row) * 1e3 / float(row["latency_ms"]) for row in rows_of(table)]
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
    row = next(row for row in rows_of("moe") if (row["num_tokens"], row["moe_ep_size"]) == ("4", "1"))
    assert row["distribution"] == "power_law_1.2" and row["system"] == "a100_sxm"
    assert kernels.least_seconds(row | {"distribution": "uniform"}) * 1e3 > 1.1 * float(row["latency_ms"])
    by_chance = Routing.model_validate("power_law(1.2)").touched(256, 8, 4)
    touched = kernels.moe(row).kernels[0].experts.touched
    assert touched == 19 < by_chance < 28  # that get a whole token


def test_what_is_not_priced_is_left_out(kernels: ModuleType) -> None:
    with pytest.raises(kernels.Unknown, match="nvfp4"):
        kernels.least_seconds(rows_of("moe")[0] | {"moe_dtype": "nvfp4"})
    with pytest.raises(kernels.Unknown, match=r"power_law_1\.2_balanced"):
        kernels.least_seconds(rows_of("moe")[0] | {"distribution": "power_law_1.2_balanced"})
    with pytest.raises(kernels.Unknown, match="b300_sxm fp8"):  # whose peak is one number for all types
        kernels.least_seconds(rows_of("gemm")[0] | {"system": "b300_sxm", "gemm_dtype": "fp8"})
    with pytest.raises(kernels.Unknown, match="context"):
        kernels.least_seconds(rows_of("mla")[0] | {"phase": "context"})


@pytest.mark.parametrize("table", ["moe_all_to_all", "deepep_low_latency", "deepep_normal"])
def test_no_exchange_is_faster_than_its_links(all_to_all: ModuleType, table: str) -> None:
    ratios = [one.least_seconds() / one.seconds for row in rows_of(table) for one in all_to_all.exchanges(row)]
    assert 0.5 < max(ratios) <= 1.0


def test_the_least_of_an_exchange_is_a_count_by_hand(all_to_all: ModuleType) -> None:
    row = next(row for row in rows_of("deepep_normal") if (row["node_num"], row["num_token"]) == ("8", "65536"))
    out, back = all_to_all.exchanges(row)
    # of 128 experts on four of the nodes eight are chosen: 96 of them are not on a given one
    missed = 1.0
    for chosen in range(8):
        missed *= (96 - chosen) / (128 - chosen)
    nodes = 4 * (1 - missed) * 7 / 8  # the sender's own is one of eight
    assert out.least_seconds() == pytest.approx(65536 * nodes * 7168 / 50e9, rel=1e-9)
    assert back.least_seconds() == pytest.approx(2 * out.least_seconds(), rel=1e-9)


def test_an_alpha_and_a_rate_foretell_the_sizes_that_were_not_fitted(all_to_all: ModuleType) -> None:
    group = [one for row in rows_of("moe_all_to_all") for one in all_to_all.exchanges(row)]
    fit = all_to_all.fitted(group)
    assert fit.rows == 65 and 50 < fit.alpha_us < 90 and 300 < fit.gb_per_s < 450
    assert fit.held_out_error < 0.15
    exact = [all_to_all.Exchange(**{**vars(one), "seconds": 2e-5 + one.sent_bytes / 3e11}) for one in group]
    fit = all_to_all.fitted(exact)
    assert (fit.alpha_us, fit.gb_per_s) == pytest.approx((20.0, 300.0)) and fit.held_out_error < 1e-9
    falling = [all_to_all.Exchange(**{**vars(one), "seconds": 1.0 / one.sent_bytes}) for one in group]
    fit = all_to_all.fitted(falling)
    assert fit.gb_per_s is None and fit.alpha_us > 0
