"""What dfopt says of itself: schemas of documents, and ``dfopt explain``, a page for each kind of name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Data, answered, call, run
from design_cases import SIZES, chosen
from jsonschema import Draft202012Validator, ValidationError
from plot_cases import heat_report

import dfopt
from dfopt.cli.explain_command import _fields, _options, _pages
from dfopt.commands import check
from dfopt.documents.kinds import KINDS, kind_of
from dfopt.documents.mapping import Mapping, Plan
from dfopt.documents.result import Result
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.zoo import find, zoo
from dfopt.errors import EXIT_CODES, DfoptError
from dfopt.exploring.explore import explore
from dfopt.frontends.deepflow import read_design

CALIBRATION = Path(__file__).parents[2] / "systems" / "calibrations" / "a100-calibrated.yaml"
DEEPFLOW = Path(__file__).parents[1] / "golden" / "deepflow" / "age_derived_parameters.json"
STUDY = {"schema": "dfopt/study/1", "name": "a", "graphs": [{"graph": "gpt2-small"}], "systems": [{"system": "a100-8"}]}
SHOWN = {
    "graph": "gpt2-small", "system": "a100-8", "assumptions": "dfmodel", "chip": "sn30", "memory": "ddr4",
    "link": "pcie-4", "topology": "torus-2d-1024", "stack": "hybrid-vault",
}  # fmt: skip


@pytest.fixture(scope="module")
def documents() -> dict[str, Data]:
    """A dumped document of every kind."""
    result = answered("solve", "gpt2-small", "sn10-8-ring", "--no-sensitivity", "--tp", 8, "-q")
    certificate = check(Result.from_data(result)).certificate
    assert certificate is not None
    design = read_design(json.loads(DEEPFLOW.read_text(encoding="utf-8"))["base_inputs"]["V100"], "v100")[0]
    return {
        "technology": design.technology.to_data(),
        "technology-part": {**design.technology.to_data(), "schema": "dfopt/technology-part/1"},
        "design": design.to_data(),
        "exploration": explore("gpt2-small", chosen(**SIZES), gap=1.0).to_data(),
        "pins": {"schema": "dfopt/pins/1", "p_max": 3, "sharding": {"FFN0": "m"}, "partition": {"Add_2": 1}},
        "plan": result["plan"],
        "mapping": result["mapping"],
        "score": result["score"],
        "result": result,
        "calibration": load_strict(CALIBRATION),
        "heat": heat_report(Mapping.from_data(result["mapping"]), 1.6).to_data(),
        "question": result["question"],
        "certificate": certificate.to_data(),
        "study": STUDY,
        **{kind: answered("show", name) for kind, name in SHOWN.items()},
    }


@pytest.mark.parametrize("kind", KINDS)
def test_schema_accepts_the_dumped_document(kind: str, documents: dict[str, Data]) -> None:
    answer = run("schema", kind)
    schema = json.loads(answer.out)
    document = documents[kind]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)
    form = schema["anyOf"][0] if "anyOf" in schema else schema
    assert form["properties"]["schema"]["const"] == document["schema"]
    accept(document, form, schema)
    with pytest.raises(ValidationError):
        accept({**document, "surprise": 1}, form, schema)


@pytest.mark.parametrize(
    ("kind", "shelf"),
    [("graph", "graphs"), ("design", "designs"), ("technology", "technologies"), ("technology-part", "technologies")],
)
def test_a_schema_accepts_the_zoo_as_it_is_written(kind: str, shelf: str) -> None:
    schema = json.loads(call("schema", kind).out)
    Draft202012Validator.check_schema(schema)
    recipes = {form["properties"].get("workload", {}).get("const"): form for form in schema.get("anyOf", ())}
    written = [data for name in zoo(shelf) if kind_of(data := load_strict(find(shelf, name)), name) == kind]
    assert written
    for data in written:
        form = recipes[data["workload"]] if kind == "graph" else schema
        accept(data, form, schema)
        with pytest.raises(ValidationError):
            accept({**data, "surprise": 1}, form, schema)
        if kind == "graph":
            with pytest.raises(ValidationError):
                accept({**data, "parameters": {**data["parameters"], "hiden": 8}}, form, schema)


def accept(value: Any, schema: Data, root: Data) -> None:
    """An error, unless one form of a schema takes a value."""
    Draft202012Validator({**schema, "$defs": root.get("$defs", {})}).validate(value)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("network.tier", ["system.network.tier", "also in   design.template.network.tier", "Place where the links"]),
        ("network.tier", ["rack: inside a rack", "None"]),
        ("system.chip.sram.capacity", ["chip.sram.capacity", "unit      B", "required"]),
        ("options.gap", ["question.options.gap", "Relative gap", "default   0", "example   1%", "see also  --gap"]),
        ("time-limit", ["question.options.time_limit", "unit      s", "60 s"]),
        ("graph.parameters.seq", ["Tokens of one sample", "unit      tokens"]),
        ("tp", ["Degree of tensor parallelism", "unit      chips"]),
        ("--module", ["option", "MODULE=n|outer|m|context|none", "dfopt solve"]),
        ("--gap", ["Relative gap to the proven bound", "commands  dfopt solve", "question.options.gap"]),
        ("optimal_per_level", ["value of result.status", "No mapping is faster with the sharding that is optimal"]),
        ("overlap", ["assumptions.overlap", "default, ideal: auto; dfmodel, dfmodel-allow-empty: perfect"]),
        ("dfmodel", ["profile of assumptions", "sharding_rules", "perfect"]),
        ("mfu", ["score.model_flop_utilization", "unit      share", "formula   3 (training; 1 otherwise) x FLOP"]),
        ("TP4(node)", ["word of a plan", "Degree of tensor parallelism", "here   4", "along node", "plan.tp"]),
        ("ZeRO-1", ["word of a plan", "1: the optimizer state", "plan.zero"]),
        ("4", ["exit code", "No mapping fits"]),
        ("no_solution", ["column of a study", "if a limit came first"]),
        ("perf_per_watt", ["column of a study", "FLOP/s per W"]),
    ],
)
def test_a_page_says_what_a_name_means(name: str, parts: list[str]) -> None:
    found = call("explain", name)
    assert found.code == 0 and not found.err
    assert all(part in " ".join(found.out.split()) for part in (" ".join(part.split()) for part in parts)), found.out
    assert max(map(len, found.out.splitlines())) <= 100


def test_every_word_of_a_plan_is_explained() -> None:
    plan = Plan(
        tp=2, tp_dims=("x",), pp=4, pp_dims=("y",), dp=2, dp_dims=("z",), layers_per_stage=8, first_layers=7,
        last_layers=6, interleave=2, zero=2, recomputed=3, two_batch_overlap=True,
    )  # fmt: skip
    words = plan.label.split()
    assert len(words) == 8
    assert all("word of a plan" in {page.kind for page in _pages(word)} for word in words)


def test_every_exit_code_of_an_error_is_explained() -> None:
    def below(kind: type[DfoptError]) -> set[int]:
        return {kind.exit_code}.union(*map(below, kind.__subclasses__()))

    assert below(DfoptError) <= EXIT_CODES.keys()
    assert all([page.kind for page in _pages(str(code))] == ["exit code"] for code in EXIT_CODES)


def test_every_field_and_option_is_found_by_the_path_that_a_page_gives() -> None:
    paths = {path for path, *_ in _fields()}
    assert {"question.options.gap", "plan.tp", "result.status", "chip.sram.capacity"} <= paths
    for page, names in _options():
        assert page.text.endswith(".") and len(page.text) > 1, names
        assert all(fact in paths for key, fact in page.facts if key == "field")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("overlp", "'overlap'"), ("--modul", "'--module'"), ("optimall", "'optimal'"), ("idael", "'ideal'"),
        ("result.statu", "'result.status'"), ("99", "dfopt schema"),
    ],
)  # fmt: skip
def test_an_unknown_name_gets_near_ones_and_the_exit_code_of_other_commands(name: str, near: str) -> None:
    found = call("explain", name)
    assert (found.code, found.out) == (2, "") and near in found.err
    assert call("list", "nonsense").code == found.code


def test_the_help_of_an_option_is_the_text_of_the_field_that_it_sets() -> None:
    out = " ".join(call("solve", "--help-all").out.split())
    assert "--gap GAP Relative gap to the proven bound at which the search may stop; default: 0; such as 1% " in out
    assert (
        "--zero 0|1|2|3[,...]|all Levels of ZeRO that dfopt tries in training; default: all levels; such as 0,1" in out
    )
    assert "--tp N Degree of tensor parallelism: the number of chips that share" in out
    assert "more of each resource; default: true " in out, "the default of the option, where it has one"


def test_json_has_the_same_pages() -> None:
    (page,) = answered("explain", "network.tier")
    assert page["title"] == "system.network.tier" and ["default", "None"] in page["facts"]


def test_terms_of_the_glossary_are_explained() -> None:
    glossary = Path(dfopt.__file__).parent / "guide" / "glossary.md"
    if not glossary.is_file():
        pytest.skip("this version has no guide")
    assert "term" in call("explain", "activation", "recomputation").out
