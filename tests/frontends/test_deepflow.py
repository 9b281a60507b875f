"""Chips that DeepFlow generates from its configurations, by the closed form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from by_path import module_at

from dfopt.documents.design import Design
from dfopt.errors import DocumentError
from dfopt.frontends.deepflow import read_design

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = json.loads((ROOT / "tests/golden/deepflow/age_derived_parameters.json").read_text(encoding="utf-8"))
RUNNER = ROOT / "benchmarks" / "reference" / "age.py"


AGE = module_at(RUNNER)  # of the whole table


def configuration(position: int) -> dict[str, Any]:
    found: dict[str, Any] = AGE.configuration(GOLDEN["base_inputs"], GOLDEN["cases"][position])
    return found


def test_every_figure_of_the_program() -> None:
    rows = list(AGE.differences(GOLDEN))
    assert len(rows) == sum(len(part) for case in GOLDEN["cases"] for part in case["derived"].values()) == 612
    assert [row for row in rows if not row[3] <= 1e-6] == []


def test_a_design_is_saved_and_read_again(tmp_path: Path) -> None:
    design = read_design(configuration(1), "V100")[0]
    design.dump(tmp_path / "v100.yaml")
    assert Design.load(tmp_path / "v100.yaml") == design


def test_what_is_missing_is_named() -> None:
    config = configuration(0)
    del config["tech_param"]["DRAM"]["stack_capacity"]
    with pytest.raises(DocumentError, match=r"\$\.tech_param\.DRAM\.stack_capacity: the key is missing"):
        read_design(config, "P4")[0]
    config["tech_param"]["DRAM"]["stack_capacity"] = "1 GiB"
    with pytest.raises(DocumentError, match="expected a size such as '32 KB'"):
        read_design(config, "P4")[0]
