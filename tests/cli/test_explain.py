"""``dfopt explain``: a page for each kind of name, from the texts of the documents, the commands and the glossary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_tools import call

import dfopt
from dfopt.cli.explain_command import _fields, _names, _options, _pages
from dfopt.documents.mapping import Plan
from dfopt.documents.result import Result
from dfopt.errors import EXIT_CODES, DfoptError


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "network.tier",
            [
                "system.network.tier",
                "also in   design.template.network.tier",
                "Place where the links",
                "rack: inside a rack",
                "None",
            ],
        ),
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


@pytest.mark.parametrize(("name", "near"), [("overlp", "'overlap'"), ("--modul", "'--module'"), ("99", "dfopt schema")])
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
    (page,) = json.loads(call("explain", "network.tier", "--json").out)
    assert page["title"] == "system.network.tier" and ["default", "None"] in page["facts"]


def test_terms_of_the_glossary_are_explained(tmp_path: Path) -> None:
    glossary = Path(dfopt.__file__).parent / "guide" / "glossary.md"
    if not glossary.is_file():
        pytest.skip("this version has no guide")
    assert "term" in call("explain", "activation", "recomputation").out


def test_names_hold_statuses_fields_and_options() -> None:
    assert {"status", "optimal", "--tp", "ideal", "result.status"} <= {*_names()}
    assert "status" in Result.model_fields
