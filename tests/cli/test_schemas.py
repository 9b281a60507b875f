"""JSON schemas of documents: each accepts what dfopt itself writes, and nothing that dfopt does not know."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Data, call
from design_cases import SIZES, chosen

from dfopt.commands import check
from dfopt.documents.heat import HeatAnswer, HeatProof, HeatReport, ShadowPrice, SlowedPartition
from dfopt.documents.kinds import KINDS, kind_of
from dfopt.documents.mapping import Mapping
from dfopt.documents.result import Result
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.zoo import find, zoo
from dfopt.exploring.explore import explore
from dfopt.frontends.deepflow import read_design

CALIBRATION = Path(__file__).parents[2] / "systems" / "calibrations" / "a100-calibrated.yaml"
DEEPFLOW = Path(__file__).parents[1] / "golden" / "deepflow" / "age_derived_parameters.json"


@pytest.fixture(scope="module")
def documents() -> dict[str, Data]:
    """A dumped document of every kind."""
    result = json.loads(call("solve", "gpt2-small", "sn10-8-ring", "--no-sensitivity", "--tp", 8, "--json", "-q").out)
    certificate = check(Result.from_data(result)).certificate
    assert certificate is not None
    design = read_design(json.loads(DEEPFLOW.read_text(encoding="utf-8"))["base_inputs"]["V100"], "v100")[0]
    return {
        "technology": design.technology.to_data(),
        "technology-part": {**design.technology.to_data(), "schema": "dfopt/technology-part/1"},
        "design": design.to_data(),
        "exploration": explore("gpt2-small", chosen(**SIZES), gap=1.0).to_data(),
        "graph": json.loads(call("show", "gpt2-small", "--json").out),
        "system": json.loads(call("show", "a100-8", "--json").out),
        "assumptions": json.loads(call("show", "dfmodel", "--json").out),
        "pins": {"schema": "dfopt/pins/1", "p_max": 3, "sharding": {"FFN0": "m"}, "partition": {"Add_2": 1}},
        "plan": result["plan"],
        "mapping": result["mapping"],
        "score": result["score"],
        "result": result,
        "calibration": load_strict(CALIBRATION),
        "heat": heat_report(Mapping.from_data(result["mapping"])).to_data(),
        "question": result["question"],
        "certificate": certificate.to_data(),
        "study": {
            "schema": "dfopt/study/1",
            "name": "one",
            "graphs": [{"graph": "gpt2-small"}],
            "systems": [{"system": "a100-8"}],
        },
        **{
            kind: json.loads(call("show", name, "--json").out)
            for kind, name in (
                ("chip", "sn30"),
                ("memory", "ddr4"),
                ("link", "pcie-4"),
                ("topology", "torus-2d-1024"),
                ("stack", "hybrid-vault"),
            )
        },
    }


def heat_report(mapping: Mapping) -> HeatReport:
    """A report with every kind of part."""
    answer = HeatAnswer(
        name="aware", mapping=mapping, step_time_s=2.0, interval_s=1.0, pause_s=0.0, lowest_frequency=0.9, partitions=3,
        logic_max_c=90.0, refresh_rate=1.0, power_w=200.0, energy_per_step_j=400.0, keeps_limits=True,
    )  # fmt: skip
    proof = HeatProof(
        status="optimal_per_level", bound_s=1.0, interval_s=1.0, gap=0.0, blocks=9, levels=8, columns=3, rounds=2,
        seconds=1.0,
    )  # fmt: skip
    price = ShadowPrice(lp_logic_s_per_k=0.1, lp_dram_s_per_k=0.0, binding=("tile 0,0 of die logic",))
    slowed = (SlowedPartition(stage=0, partition=1, frequency=0.9, kernels=("FFN0",)),)
    return HeatReport(
        graph="a", system="b", stack="c", plan="TP8", answers=(answer,), proof=proof, price=price, slowed=slowed
    )


@pytest.mark.parametrize("kind", KINDS)
def test_schema_accepts_the_dumped_document(kind: str, documents: dict[str, Data]) -> None:
    answer = call("schema", kind)
    assert answer.code == 0
    schema = json.loads(answer.out)
    document = documents[kind]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    check_schema(schema)
    form = schema["anyOf"][0] if "anyOf" in schema else schema
    assert form["properties"]["schema"]["const"] == document["schema"]
    accept(document, form, schema)
    with pytest.raises(AssertionError):
        accept({**document, "surprise": 1}, form, schema)


def test_the_graph_schema_accepts_the_zoo_as_it_is_written() -> None:
    schema = json.loads(call("schema", "graph").out)
    check_schema(schema)
    recipes = [form for form in schema["anyOf"] if "workload" in form["properties"]]
    for name in zoo("graphs"):
        data = load_strict(find("graphs", name))
        recipe = next(form for form in recipes if form["properties"]["workload"]["const"] == data["workload"])
        accept(data, recipe, schema)
        with pytest.raises(AssertionError):
            accept({**data, "parameters": {**data["parameters"], "hiden": 8}}, recipe, schema)


@pytest.mark.parametrize("kind", ["design", "technology", "technology-part"])
def test_their_schemas_accept_the_zoo_as_it_is_written(kind: str) -> None:
    schema = json.loads(call("schema", kind).out)
    check_schema(schema)
    shelf = "designs" if kind == "design" else "technologies"
    written = [data for name in zoo(shelf) if kind_of(data := load_strict(find(shelf, name)), name) == kind]
    assert written
    for data in written:
        accept(data, schema, schema)
        with pytest.raises(AssertionError):
            accept({**data, "surprise": 1}, schema, schema)


def check_schema(schema: Data) -> None:
    """Whether it is a schema at all, where jsonschema is installed."""
    try:
        import jsonschema  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return
    jsonschema.Draft202012Validator.check_schema(schema)


def accept(value: Any, schema: Data, root: Data) -> None:
    """A validator of the part of JSON Schema that pydantic writes."""
    if "$ref" in schema:
        accept(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    for one in schema.get("allOf", ()):
        accept(value, one, root)
    options = schema.get("anyOf", schema.get("oneOf", ()))
    assert not options or any(_accepts(value, one, root) for one in options), (value, options)
    if "const" in schema:
        assert value == schema["const"]
    if "enum" in schema:
        assert value in schema["enum"]
    kinds: dict[str, Any] = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
        "null": type(None),
    }  # fmt: skip
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), (value, schema)
    if isinstance(value, str) and "pattern" in schema:
        assert re.search(schema["pattern"], value), (value, schema)
    if isinstance(value, (int, float)):
        assert schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if isinstance(value, list):
        front = schema.get("prefixItems", [])
        for n, one in enumerate(value):
            accept(one, front[n] if n < len(front) else schema.get("items", {}), root)
    if isinstance(value, dict):
        known = schema.get("properties", {})
        more = schema.get("additionalProperties", {})
        assert set(schema.get("required", ())) <= set(value), (set(value), schema["required"])
        for key, one in value.items():
            assert key in known or more is not False, key
            accept(one, known.get(key, more if isinstance(more, dict) else {}), root)


def _accepts(value: Any, schema: Data, root: Data) -> bool:
    try:
        accept(value, schema, root)
    except AssertionError:
        return False
    return True
