"""Expanding a study: the product, its order, digests of content, and what cannot be expanded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from golden_files import golden, rows
from study_cases import study

from dfopt.documents.calibration import Calibration
from dfopt.errors import DocumentError
from dfopt.machines.compose import load_system
from dfopt.studies.cells import expand

SRAM = {
    "sram": [
        {"label": 1, "set": {"system.chip.sram.capacity": "1 MiB"}},
        {"label": 2, "set": {"system.chip.sram.capacity": "2 MiB"}},
    ]
}


PARTS: dict[str, Any] = {
    "chips": [{"label": "tiny", "use": {"name": "t", "tiles": 1, "peak": "1 TFLOP/s", "sram": {"capacity": "1 MB"}}}],
    "memories": [
        {"label": "slow", "use": {"bandwidth": "100 GB/s"}},
        {"label": "fast", "use": {"bandwidth": "1 TB/s"}},
    ],
    "links": [
        {"label": "25", "use": {"bandwidth": "25 GB/s"}},
        {"label": "mixed", "use": [{"bandwidth": "50 GB/s"}, {"bandwidth": "10 GB/s"}]},
    ],
    "topologies": [{"label": "torus", "use": {"topology": "torus", "sizes": [4, 2]}}],
    "set": {"collective_overhead": "1 us"},
}


def test_the_product_in_the_order_of_the_document() -> None:
    whole = study(
        graphs=[{"graph": "gpt2-small"}, {"graph": "gpt2-small", "label": "large", "parameters": {"batch": 16}}],
        assumptions=[{"profile": "default"}, {"label": "kbk", "set": {"execution": "kernel_by_kernel"}}],
        axes={**SRAM, "degree": [{"label": 8, "set": {"options.tp": 8}}]},
    )
    cells = expand(whole)
    assert len(cells) == 2 * 2 * 2 * 2
    first, last = cells[0], cells[-1]
    assert list(first.axes.values()) == [
        "gpt2-small", "ring", "SambaNova SN10 RDU", None, None, None, "ring 8", "default", 1, 8,
    ]  # fmt: skip
    assert (last.graph.batch, last.system.chip.sram.capacity) == (16, 2 * 2**20)
    assert (last.assumptions.execution, last.options.tp) == ("kernel_by_kernel", 8)
    assert len({cell.key for cell in cells}) == len(cells)


def test_digests_are_the_same_in_another_process() -> None:
    here = [cell.key for cell in expand(study(axes=SRAM))]
    code = (
        "from study_cases import study; from test_cells import SRAM; from dfopt.studies.cells import expand;"
        "print(*(cell.key for cell in expand(study(axes=SRAM))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parent,
        env={"PYTHONHASHSEED": "7", "PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout.split() == here


def key(**changes: Any) -> str:
    return expand(study(**{"systems": [{"system": "sn10-8-ring"}], **changes}))[0].key


@pytest.mark.parametrize(
    "changes",
    [
        {"graphs": [{"graph": "gpt2-small", "parameters": {"batch": 16}}]},
        {"systems": [{"system": "sn10-8-torus"}]},
        {"systems": [{"system": "sn10-8-ring", "set": {"chip.dram.bandwidth": "201 GB/s"}}]},
        {"assumptions": [{"set": {"overlap": "none"}}]},
        {"options": {"tp": 4, "time_limit": "20 s"}},
        {"options": {"tp": 8, "time_limit": "21 s"}},
        {"seed": 1},
    ],
)
def test_a_digest_changes_with_what_is_asked(changes: dict[str, Any]) -> None:
    assert key(**changes) != key()


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other", "description": "words", "source": "words"},
        {"systems": [{"system": "sn10-8-ring", "label": "other", "set": {"description": "words"}}]},
        {"graphs": [{"graph": "gpt2-small", "label": "other", "parameters": {"batch": 8}}]},
        {"assumptions": [{"label": "other", "set": {"stage_time": "sum"}}]},  # the default, written out
        {"systems": [{"system": "sn10-8-ring", "set": {"chip.dram.bandwidth": "0.2 TB/s"}}]},  # as it is
        {"claims": [{"name": "c", "value": "gap", "at_most": 1}]},
    ],
)
def test_a_digest_does_not_change_with_words(changes: dict[str, Any]) -> None:
    assert key(**changes) == key()


def test_options_of_a_graph_and_of_an_axis_go_before_the_study_s() -> None:
    graphs = [{"graph": "gpt2-small"}, {"graph": "gpt2-small", "label": "b", "options": {"tp": 4, "gap": 0.5}}]
    axes = {"degree": [{"label": 0}, {"label": 2, "set": {"options.tp": 2}}]}
    cells = expand(study(graphs=graphs, axes=axes, systems=[{"system": "sn10-8-ring"}]))
    assert [(cell.options.tp, cell.options.gap) for cell in cells] == [(8, 0.0), (2, 0.0), (4, 0.5), (2, 0.5)]


def test_parameters_and_limits_are_axes() -> None:
    small = {"graph": "gpt2-small"}
    whole = study(
        graphs=[small, {**small, "label": "training", "parameters": {"mode": "training"}}],
        systems=[{"system": "sn10-8-ring"}],
        parameters={"batch": [8, 16]},
        limits=[{"time_limit": "5 s", "p_max": 4}, {"label": "proof", "gap": 0.01, "graphs": ["training"]}],
        options={"tp": 8},
    )
    found = [
        (*(cell.axes[name] for name in ("graph", "batch", "limits")), cell.graph.batch, cell.options.time_limit,
         cell.options.gap, cell.options.p_max, cell.options.tp)
        for cell in expand(whole)
    ]  # fmt: skip
    quick = "5 s, p_max 4"
    assert found == [
        ("gpt2-small", 8, quick, 8, 5.0, 0.0, 4, 8),
        ("gpt2-small", 16, quick, 16, 5.0, 0.0, 4, 8),
        ("training", 8, quick, 8, 5.0, 0.0, 4, 8),
        ("training", 8, "proof", 8, 60.0, 0.01, None, 8),
        ("training", 16, quick, 16, 5.0, 0.0, 4, 8),
        ("training", 16, "proof", 16, 60.0, 0.01, None, 8),
    ]
    assert list(expand(whole)[0].axes)[-3:] == ["assumptions", "batch", "limits"]


def test_another_spelling_is_the_same_cell() -> None:
    """What a store has must not be solved again because a study says it otherwise."""
    old = study(
        graphs=[{"graph": "gpt2-small", "parameters": {"batch": 16}}],
        options={"tp": 8, "time_limit": "20 s", "gap": 0.01, "p_max": 4},
    )
    axes = {"one": [{"label": 1, "set": {"graph.batch": 16, "options.gap": 0.01, "options.p_max": 4}}]}
    graphs = [{"graph": "gpt2-small"}]
    limits = [{"time_limit": "20000 ms", "gap": 0.01, "p_max": 4}]
    by_axis = study(graphs=graphs, axes=axes)
    by_key = study(graphs=graphs, parameters={"batch": [16]}, limits=limits, options={"tp": 8})
    keys = [[cell.key for cell in expand(whole)] for whole in (old, by_axis, by_key)]
    assert keys[0] == keys[1] == keys[2]


def test_filters_drop_cells() -> None:
    some = study(
        graphs=[{"graph": "gpt2-small"}], parameters={"batch": [8, 16]}, options={"tp": 8},
        limits=[{"gap": 0.1, "label": "a"}, {"gap": 0.2, "label": "b"}],
        filters=[{"drop": "limits == 'a' and batch > 8 or system == 'ring'"}],
    )  # fmt: skip
    assert [(cell.axes["batch"], cell.axes["limits"]) for cell in expand(some)] == [(8, "a"), (8, "b"), (16, "b")]
    whole = study(axes=SRAM, filters=[{"drop": "sram == 1 and system == 'torus'"}, {"drop": "system in ['ring']"}])
    assert [cell.label for cell in expand(whole)] == [
        "gpt2-small | torus | SambaNova SN10 RDU | ring 4 x ring 2 | auto | 2"
    ]


def test_systems_and_assumptions_of_some_graphs() -> None:
    one, two = [{"graph": "gpt2-small", "label": label} for label in ("one", "two")]
    ring = {"system": "sn10-8-ring", "label": "same"}
    cells = expand(
        study(
            graphs=[one, two],
            systems=[{**ring, "graphs": ["one"]}, {**ring, "system": "sn10-8-torus", "graphs": ["two"]}],
            assumptions=[{}, {"label": "kbk", "set": {"execution": "kernel_by_kernel"}, "graphs": ["two"]}],
        )
    )
    found = [
        (cell.axes["graph"], cell.axes["system"], cell.axes["assumptions"], len(cell.system.network)) for cell in cells
    ]
    assert found == [("one", "same", "auto", 1), ("two", "same", "auto", 2), ("two", "same", "kbk", 2)]
    with pytest.raises(DocumentError, match="'same' is there twice"):
        study(graphs=[one, two], systems=[ring, {**ring, "system": "sn10-8-torus", "graphs": ["two"]}])


def test_files_are_found_beside_the_study(tmp_path: Path) -> None:
    load_system("sn10-8-ring").dump(tmp_path / "mine.yaml")
    whole = study(systems=[{"system": "mine.yaml", "label": "mine"}])
    assert expand(whole, tmp_path)[0].system.chips == 8
    with pytest.raises(DocumentError, match="no such file"):
        expand(whole, tmp_path / "elsewhere")


def test_systems_from_parts() -> None:
    cells = expand(study(systems=[PARTS]))
    assert [cell.axes["system"] for cell in cells] == [
        "tiny-slow-25-torus", "tiny-slow-mixed-torus", "tiny-fast-25-torus", "tiny-fast-mixed-torus",
    ]  # fmt: skip
    second = cells[1].system
    assert [dim.link_bandwidth for dim in second.network] == [50e9, 10e9]
    assert (second.chip.dram.bandwidth, second.collective_overhead) == (100e9, 1e-6)
    assert cells[1].axes["memory"] == "slow"


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        *rows(golden("bad_studies.yaml")["expansion"], "change", "place", "says"),
        ({"systems": [{**PARTS, "chips": ["sn99"]}]}, "$.systems[0]", "sn99-slow-25-torus: $.chip: no chip"),
        ({"systems": [PARTS, PARTS]}, "$.systems[1]", "the system 'tiny-slow-25-torus' is there twice"),
    ],
)
def test_what_cannot_be_expanded_is_told_before_anything_is_solved(
    changes: dict[str, Any], place: str, words: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        expand(study(**changes), path="study.yaml")
    said = str(caught.value)
    assert said.startswith("study.yaml: 1 problem\n"), said
    assert f"  {place}: " in said and words in said, said


CALIBRATED: dict[str, Any] = {
    "systems": [{"system": "a100-8"}, {"system": "h100-8"}, {"system": "b200-8"}],
    "assumptions": [{"profile": "default"}, {"profile": "calibrated"}],
}
DROP = "assumptions == 'calibrated' and chip == 'NVIDIA B200 180GB SXM'"


def test_calibrated_is_the_profile_of_each_systems_chip(tmp_path: Path) -> None:
    cells = expand(study(**CALIBRATED, filters=[{"drop": DROP}]))
    a100, h100 = (
        Calibration.load(Path(__file__).parents[2] / "systems" / "calibrations" / f"{chip}-calibrated.yaml")
        for chip in ("a100", "h100")
    )
    assert [cell.calibration for cell in cells] == [None, a100.stamp, None, h100.stamp, None]
    assert [cell.assumptions.profile for cell in cells[1::2]] == ["a100-calibrated", "h100-calibrated"]
    assert cells[1].system == a100.applied(cells[0].system) and cells[1].assumptions == a100.assumptions
    # a file is taken as it is, and another fit makes other cells: what a store has of this one is not taken for it
    other = a100.model_copy(update={"efficiency": tuple(r.model_copy(update={"share": 0.5}) for r in a100.efficiency)})
    for name, fit in (("same", a100), ("other", other)):
        fit.dump(tmp_path / f"{name}.yaml")
        [cell] = expand(study(systems=[{"system": "a100-8"}], assumptions=[{"profile": f"{name}.yaml"}]), tmp_path)
        assert (cell.key == cells[1].key) is (name == "same") and cell.axes["assumptions"] == f"{name}.yaml"


def test_a_chip_without_a_calibration_is_told_with_the_filter_that_leaves_it_out() -> None:
    with pytest.raises(
        DocumentError, match=r"\$\.assumptions\[1\]\.profile: found no calibration of 'NVIDIA B200"
    ) as told:
        expand(study(**CALIBRATED))
    assert "nearest by peak rate: 'NVIDIA H100 80GB SXM' (h100-calibrated), 'NVIDIA A100" in str(told.value)
    assert len(told.value.issues) == 1 and f'filters: [{{drop: "{DROP}"}}]' in str(told.value)
