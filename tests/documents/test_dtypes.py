"""Data types as documents: exact sizes, what is left out, peaks of a chip by type."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from dfopt.documents.dtypes import FORMATS, Arithmetic, DataClass, Dtype, Dtypes, Peaks
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.system import Chip, Dram, Sram, System
from dfopt.errors import DocumentError

GEMM = Kernel(name="up", op="gemm", m=64, k=32, n=16)
ACT = Kernel(name="act", op="elementwise", m=64, n=16)


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("fp32", Fraction(4)),
        ("bf16", Fraction(2)),
        ("fp8", Fraction(1)),
        ("fp6", Fraction(3, 4)),
        ("fp4", Fraction(1, 2)),
        ("mxfp8", Fraction(33, 32)),
        ("mxfp6", Fraction(25, 32)),
        ("mxfp4", Fraction(17, 32)),  # 4.25 bit
        ("nvfp4", Fraction(9, 16)),  # 4.5 bit
        ("fp8_128x128", 1 + Fraction(4, 128 * 128)),
        ("fp8_1x128", 1 + Fraction(4, 128)),
        ("fp8_1x128_ue8m0", 1 + Fraction(1, 128)),
        ("int4_g32", Fraction(32 * 4 + 16, 32 * 8)),
        ("int4_g128", Fraction(128 * 4 + 16, 128 * 8)),
        ("int4_g128_zp", Fraction(128 * 4 + 16 + 4, 128 * 8)),
    ],
)
def test_an_element_has_an_exact_number_of_bytes(name: Dtype, wanted: Fraction) -> None:
    assert FORMATS[name].bytes == wanted


def test_every_name_is_a_type_that_a_float_holds_exactly() -> None:
    assert set(FORMATS) == set(get_args(Dtype))
    assert {one.arithmetic for one in FORMATS.values()} <= set(get_args(Arithmetic)) == set(Peaks.model_fields)
    assert all(Fraction(float(one.bytes)) == one.bytes for one in FORMATS.values())


def test_what_is_not_stated_follows_weights_or_activations() -> None:
    types = Dtypes(weights="mxfp4", activations="fp8", logits="fp32")
    found = {data: types.of(data) for data in get_args(DataClass)}
    assert found == {
        "weights": "mxfp4", "experts": "mxfp4", "ends": "mxfp4", "activations": "fp8", "kv": "fp8", "logits": "fp32",
    }  # fmt: skip
    sizes = {data: float(FORMATS[name].bytes) for data, name in found.items()}
    assert types.words()._asdict() == {**sizes, "state": None}
    assert Dtypes(state="bf16").words().state == 2


def test_outputs_tensors_and_inputs_have_the_bytes_of_their_class() -> None:
    kernels = (GEMM, ACT, Kernel(name="logits", op="gemm", m=100, k=64, n=16, output_class="logits"))
    tensors = (Tensor(src="up", dst="act"), Tensor(src="act", dst="logits"))
    types = Dtypes(weights="int4", activations="fp8", logits="fp32")
    graph = Graph(name="g", kernels=kernels, tensors=tensors, dtypes=types)
    assert [graph.output_bytes(k) for k in range(3)] == [64 * 16, 64 * 16, 100 * 16 * 4]
    assert graph.reads() == [(0, 1, 32.0 * 16)] and graph.writes() == [(2, 100.0 * 16 * 4)]
    assert graph.elements_of(tensors[0]) == 64 * 16


def test_a_graph_that_states_none_is_as_before(tmp_path: Path) -> None:
    graph = Graph(name="g", kernels=(GEMM, ACT), tensors=(Tensor(src="up", dst="act"),))
    assert "dtypes" not in graph.to_data() and "output_class" not in graph.to_data()["kernels"][0]
    typed = graph.model_copy(update={"dtypes": Dtypes(weights="nvfp4")})
    typed.dump(tmp_path / "g.yaml")
    assert Graph.load(tmp_path / "g.yaml") == typed
    assert (tmp_path / "g.yaml").read_text().count("nvfp4") == 1


def test_words_of_another_size_beside_types_are_refused() -> None:
    data = {"name": "g", "kernels": [GEMM.model_dump(mode="json")], "word_bytes": 4, "dtypes": {}}
    with pytest.raises(DocumentError, match=r"\$\.word_bytes: found 4, but dtypes say .* \(leave it out"):
        Graph.from_data({"schema": Graph.SCHEMA, **data})


def chip(peak: Any, **more: Any) -> Chip:
    return Chip(name="c", tiles=4, peak=peak, sram=Sram(capacity=1e6), dram=Dram(bandwidth=1e9), **more)


def test_peaks_by_type_survive_a_round_trip(tmp_path: Path) -> None:
    system = System(name="s", chip=chip({"bf16": 1e12, "fp8": "2 TFLOP/s"}))
    assert system.chip.peak == Peaks(bf16=1e12, fp8=2e12) and system.chip.peak_flops == 1e12
    assert system.to_data()["chip"]["peak"] == {"bf16": "1 TFLOP/s", "fp8": "2 TFLOP/s"}
    system.dump(tmp_path / "s.yaml")
    assert System.load(tmp_path / "s.yaml") == system
    assert System(name="s", chip=chip(1e12)).to_data()["chip"]["peak"] == "1 TFLOP/s"


@pytest.mark.parametrize("peaks, usual", [({"fp16": 3.0, "fp32": 1.0}, 3.0), ({"fp32": 1.0, "fp8": 2.0}, 1.0)])
def test_graphs_without_types_take_16_bits_or_what_is_wider(peaks: dict[str, float], usual: float) -> None:
    assert chip(peaks).peak_flops == usual


def test_an_array_agrees_with_the_usual_rate() -> None:
    array = {"lanes": 2, "stages": 5, "frequency": 1e9}
    assert chip({"bf16": 8e10, "fp8": 1.6e11}, **array).peak_flops == 8e10
    with pytest.raises(ValidationError, match="must agree to 2 %"):
        chip({"bf16": 4e10, "fp8": 8e10}, **array)


def test_a_faster_chip_is_faster_in_all_types() -> None:
    assert chip({"bf16": 1e12, "fp8": 2e12}).faster(3.0).peak == Peaks(bf16=3e12, fp8=6e12)
    assert chip(1e12).faster(3.0).peak == 3e12
