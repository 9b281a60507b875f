"""DFModel's own input in protobuf's text format gives what the same case as JSON gives, and is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dfmodel_cases import golden, solve
from hypothesis import given
from hypothesis import strategies as st

from dfopt.errors import DocumentError
from dfopt.frontends.dfmodel import DFModelCase, convert, load_case
from dfopt.frontends.dfmodel.text import parsed

# two layers on eight chips, as a user writes them by hand: no workload, and no word of what the ring carries
SETUP = """
dataflow_graph {
  kernels { name: "fc_a" id: 1 config: -1 fwd_bwd: FWD type: SYSTOLIC
    gemm_input1_weight { outer: 1 M: 4096 K: 4096 N: 64  # tokens
      input_tensor_size: 524288.0 weight_tensor_size: 33554432.0 output_tensor_size: 524288.0 tiling: NO_TILING } }
  kernels < name: 'fc_b', id: 2, config: -1, fwd_bwd: FWD, type: SYSTOLIC
    gemm_input1_weight: { outer: 1; M: 4096; K: 4096; N: 64; output_tensor_size: 5.24288e5; tiling: NO_TILING } >
  connections { startIdx: 1 endIdx: 2 id: 1 }
}
system {
  num_chip: 8
  accelerator { core: 1040 systolic_width: 32 systolic_height: 6 sram_cap: 545259520 freq: 1.6 }
  r { x: 8 link_bw_x: 10.0 }
  memory { dram_bw: 1638.0 }
}
execution { execution_style: DATAFLOW num_config: 2 word: 2 }
gurobi { gap: 0.001 time: 3600 }
"""


def imported(text: str, folder: Path) -> DFModelCase:
    (folder / "setup.txt").write_text(text)
    return load_case(folder / "setup.txt")


def as_text(value: Any) -> str:
    """A message with these fields; lists are repeated fields."""
    lines = []
    for name, content in value.items():
        for each in content if isinstance(content, list) else [content]:
            word = json.dumps(each) if isinstance(each, str) and not each.isupper() else str(each).lower()
            text = f"{{ {as_text(each)} }}" if isinstance(each, dict) else word
            lines.append(f"{name}: {each if isinstance(each, str) and each.isupper() else text}")
    return "\n".join(lines)


def message_of(case: dict[str, Any]) -> dict[str, Any]:
    """A case as the message that its authors write."""
    kernels = []
    for kernel in case["graph"]["kernels"]:
        names = {name: name for name in ("outer", "M", "K", "N", "tiling", "communication_type")}
        names |= {"output_bytes": "output_tensor_size", "weight_bytes": "weight_tensor_size"}
        inner = {new: kernel[old] for old, new in names.items() if kernel.get(old) is not None}
        head = {"name": kernel["name"], "id": kernel["id"], "config": -1, "fwd_bwd": kernel["pass"]}
        kernels.append({**head, "type": kernel["type"], kernel["variant"]: inner})
    ends = [
        {"startIdx": tensor["src"], "endIdx": tensor["dst"], "id": tensor["id"]} for tensor in case["graph"]["tensors"]
    ]
    return {"dataflow_graph": {"kernels": kernels, "connections": ends}, **case["setup"]}


@pytest.mark.parametrize("name", ["table6_dfmodel_8x1", "table6_dfmodel_4x2", "table6_vendor_8x1"])
def test_the_text_of_a_case_is_the_case(name: str, tmp_path: Path) -> None:
    case = golden(name)
    del case["mapping"], case["graph"]["template"]
    found = imported(as_text(message_of(case)), tmp_path)
    expected = convert(case, "setup")
    description = "imported from a DFModel case, template of its own"
    graph = expected.graph.model_copy(update={"description": description})
    assert replace(expected, graph=graph) == found


def test_a_graph_without_a_workload_is_evaluated_once(tmp_path: Path) -> None:
    case = imported(SETUP, tmp_path)
    assert [(kernel.m, kernel.k, kernel.n, kernel.stream) for kernel in case.graph.kernels] == [
        (4096, 4096, 64, "none")
    ] * 2
    assert [tensor.bytes for tensor in case.graph.tensors] == [524288.0]
    assert (case.graph.batch, case.pins.p_max, case.pins.tp_dims, case.system.chips) == (1, 2, None, 8)
    assert any("axis without one of TP, PP, DP is free" in note for note in case.notes)
    result = solve(case)
    # two partitions, each 4096 cycles of an array for every tile, and its share of what lies between them in DRAM
    assert result.step_time_s == pytest.approx(2 * (4096 / 1.6e9 + 524288 / 8 / 1638e9), rel=1e-9)


@given(st.data())
def test_a_text_that_is_cut_off_within_a_message_is_refused(data: st.DataObject) -> None:
    end = data.draw(st.integers(SETUP.index("{") + 1, len(SETUP)).filter(lambda end: _open(SETUP[:end])))
    with pytest.raises(DocumentError):
        parsed(SETUP[:end], "setup.txt")


def _open(text: str) -> bool:
    return text.count("{") + text.count("<") > text.count("}") + text.count(">")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("N: 64  #", "N: 64 num_input: 4  #", r"kernels\.num_input: not understood of fc_a"),
        ("freq: 1.6", "freq: 1.6 pmu: 4", r"\$\.system\.accelerator\.pmu: not understood"),
        ("word: 2", "word: 2 mamba { hidden: 4 }", r"\$\.execution\.mamba: not understood"),
        ("weight_tensor_size: 33554432.0", "weight_tensor_size: 4", "found 4 of fc_a, expected outer M K"),
        ("word: 2", "word: 2 word: 4", "word is given twice"),
        ("num_chip: 8", "num_chip: 8 }", "found"),
        ("num_chip: 8", "num_chip: eight$", "line"),
        ("num_chip: 8", "num_chip: 4", "num_chip is 4, but the network has 8 chips"),
        ("sram_cap: 545259520", "", r"system\.accelerator\.sram_cap: missing"),
        ('id: 2, config', "config", "found no DFModel setup: 'id'"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert SETUP.count(old)
    with pytest.raises(DocumentError, match=said):
        imported(SETUP.replace(old, new, 1), tmp_path)


def test_a_kernel_without_a_partition_is_in_the_first(tmp_path: Path) -> None:
    assert imported(SETUP.replace("config: -1 ", "", 1), tmp_path).pins.partition == {"fc_a": 0}
