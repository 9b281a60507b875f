"""The names of the package: each is there, and help leads to the few that one needs."""

from __future__ import annotations

import inspect
import pydoc
from pathlib import Path

import keyword_types
import pytest

import dfopt as df


def test_every_public_name_loads() -> None:
    for name in dir(df):
        assert getattr(df, name) is not None
    assert set(df.__all__) <= set(dir(df))
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = df.optimise


def test_all_errors_are_where_the_functions_are() -> None:
    mine = {name for name, value in vars(df.errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    assert {name for name in mine if not name.startswith("_")} <= set(dir(df))
    with pytest.raises(df.DfoptError):
        df.load_graph("gtp2-small")


def test_help_is_a_page_that_leads_to_the_functions_one_needs() -> None:
    text = pydoc.render_doc(df, renderer=pydoc.plaintext)
    assert len(text.splitlines()) < 410
    assert df.__doc__ is not None and len(df.__doc__.splitlines()) < 40
    for name in df.__all__:
        assert f"``{name}(" in df.__doc__


def test_keywords_have_types_for_editors() -> None:
    assert keyword_types.STUB.read_text(encoding="utf-8") == keyword_types.stub()
    parameters = inspect.signature(df.solve).parameters
    asked = keyword_types.stub().partition("class Asked")[2]
    assert {name for name in parameters if f"\n    {name}:" in asked} == {*keyword_types.keys()} | {
        keyword_types.word_of(name) for name in df.Request.model_fields
    }


def test_names_and_paths_are_taken_for_documents(tmp_path: Path) -> None:
    graph, system = df.load_graph("gpt2-small"), df.load_system("sn10-8-ring")
    system.dump(tmp_path / "s.yaml")
    result = df.optimize("gpt2-small", tmp_path / "s.yaml", tp=8, microbatch=1)
    assert result.step_time_s == df.optimize(graph, system, tp=8).step_time_s
    result.dump(tmp_path / "r.json")
    for mapping in (result, result.mapping, tmp_path / "r.json"):
        assert df.evaluate(mapping, "gpt2-small", str(tmp_path / "s.yaml")).step_time_s == result.step_time_s
    with pytest.raises(df.NotInZoo, match="did you mean 'h100-8'"):
        df.optimize("gpt2-small", "h10-8")
    with pytest.raises(df.DocumentError, match="the order is GRAPH SYSTEM"):
        df.optimize("sn10-8-ring", "gpt2-small")
    with pytest.raises(df.PlanError, match="found a value of type System, expected a graph"):
        df.optimize(system, graph)  # type: ignore[arg-type]
