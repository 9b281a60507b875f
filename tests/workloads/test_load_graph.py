"""Graph files, explicit or by workload, and what is said about wrong ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dfopt.documents.strict_yaml import dump_yaml
from dfopt.documents.zoo import zoo
from dfopt.errors import DocumentError, SchemaVersionError
from dfopt.library import load_any
from dfopt.machines.compose import load_system
from dfopt.physics.ops import flop, weight_elements
from dfopt.workloads import WORKLOADS, expand, load_graph

ALL = "calculon, decoder, dlrm, fft, hpl, lstm, stack, transformer"
SIZES: dict[str, Any] = {"hidden": 24, "heads": 4, "head_dim": 6, "seq": 8, "layers": 3, "batch": 16}


def recipe(**changes: Any) -> dict[str, Any]:
    data = {"schema": "dfopt/graph/3", "name": "tiny", "workload": "transformer", "parameters": dict(SIZES)}
    return {**data, **changes}


def written(folder: Path, data: dict[str, Any]) -> Path:
    path = folder / "graph.yaml"
    path.write_text(dump_yaml(data))
    return path


def issues(caught: pytest.ExceptionInfo[DocumentError]) -> dict[str, str]:
    return {issue.where: issue.text for issue in caught.value.issues}


# --- both ways of writing a graph ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["forward", "training"])
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_explicit_and_expanded_are_the_same_graph(tmp_path: Path, mode: str, suffix: str) -> None:
    graph = load_graph(written(tmp_path, recipe(parameters={**SIZES, "mode": mode}, source="s", description="d")))
    graph.dump(tmp_path / f"explicit.{suffix}")
    again = load_graph(tmp_path / f"explicit.{suffix}")
    assert again == graph
    assert again.digest() == graph.digest()
    assert (again.name, again.source, again.description, again.repeat) == ("tiny", "s", "d", 3)
    # The comparison can fail: another size is another graph.
    assert again != expand(recipe(parameters={**SIZES, "mode": mode, "hidden": 28}, source="s", description="d"))


def test_a_builder_called_directly_gives_the_same_graph() -> None:
    assert WORKLOADS["transformer"]("tiny", **SIZES) == expand(recipe())


# --- overrides ----------------------------------------------------------------------------------------------


def test_overrides_replace_parameters_and_leave_a_note(tmp_path: Path) -> None:
    path = written(tmp_path, recipe(description="small"))
    graph = load_graph(path, mode="training", batch=64)
    assert (graph.trains, graph.batch, graph.repeat) == (True, 64, 3)
    assert graph.name == "tiny"
    assert graph.description == "small (loaded with batch=64, mode='training')"
    assert load_graph(path).description == "small"


def test_overrides_of_an_explicit_graph(tmp_path: Path) -> None:
    expand(recipe()).dump(tmp_path / "explicit.yaml")
    graph = load_graph(tmp_path / "explicit.yaml", batch=5, repeat=7)
    assert (graph.batch, graph.repeat) == (5, 7)
    with pytest.raises(DocumentError) as caught:
        load_graph(tmp_path / "explicit.yaml", microbatch=2, bach=1)
    found = issues(caught)
    assert list(found) == ["$.microbatch", "$.bach"]
    assert all("a graph with explicit kernels takes batch, repeat (" in text for text in found.values())
    assert "edit the file" in found["$.microbatch"]
    assert "did you mean 'batch'?" in found["$.bach"]


def test_unknown_override_lists_the_allowed_ones(tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        load_graph(written(tmp_path, recipe()), hiden=8, repeat=3)
    found = issues(caught)
    assert list(found) == ["$.parameters.hiden", "$.parameters.repeat"]
    assert "did you mean 'hidden'?" in found["$.parameters.hiden"]
    for name in ("hidden", "heads", "head_dim", "ffn", "seq", "microbatch", "layers", "batch", "mode", "word_bytes"):
        assert name in found["$.parameters.repeat"]


@pytest.mark.parametrize(
    ("override", "where"),
    [
        ({"hidden": 0}, "hidden"),
        ({"batch": "64"}, "batch"),
        ({"seq": True}, "seq"),
        ({"mode": "both"}, "mode"),
        ({"microbatch": 99}, "batch"),
        ({"word_bytes": 17}, "word_bytes"),
    ],
)
def test_a_bad_override_is_an_issue_at_its_parameter(tmp_path: Path, override: dict[str, Any], where: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load_graph(written(tmp_path, recipe()), **override)
    assert list(issues(caught)) == [f"$.parameters.{where}"]


# --- files that are wrong -----------------------------------------------------------------------------------


def test_every_issue_of_a_recipe_at_once(tmp_path: Path) -> None:
    parameters = {"hidden": -1, "heads": 2.5, "head_dim": 6, "hiddn": 3}
    data = recipe(parameters=parameters, nmae="x", kernels=[])
    with pytest.raises(DocumentError) as caught:
        load_graph(written(tmp_path, data))
    found = issues(caught)
    assert set(found) == {
        "$.parameters.hidden",
        "$.parameters.heads",
        "$.parameters.seq",
        "$.parameters.hiddn",
        "$.nmae",
        "$.kernels",
    }
    assert found["$.parameters.hidden"] == "found -1, expected a number of 1 or more"
    assert found["$.parameters.heads"] == "found 2.5, expected a whole number"
    assert (
        found["$.parameters.seq"]
        == "the key is missing (add the key 'seq': Tokens of one sample; in prefill, tokens of the prompt)"
    )
    assert "did you mean 'hidden'?" in found["$.parameters.hiddn"]
    assert "did you mean 'name'?" in found["$.nmae"]
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("key", ["repeat", "batch", "kernels", "tensors", "carried", "word_bytes", "microbatch"])
def test_a_recipe_takes_no_graph_keys(key: str) -> None:
    with pytest.raises(DocumentError) as caught:
        expand(recipe(**{key: 1}))
    assert list(issues(caught)) == [f"$.{key}"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("transfromer", f"unknown workload 'transfromer' (did you mean 'transformer'? workloads: {ALL})"),
        ("zzz", f"unknown workload 'zzz' (workloads: {ALL})"),
        (None, f"unknown workload nothing (workloads: {ALL})"),
        (3, f"unknown workload 3 (workloads: {ALL})"),
        (["transformer"], f"unknown workload a list of 1 (workloads: {ALL})"),
    ],
)
def test_unknown_workload(name: object, says: str) -> None:
    with pytest.raises(DocumentError) as caught:
        expand(recipe(workload=name), "a.yaml")
    assert issues(caught) == {"$.workload": says}
    assert caught.value.path == "a.yaml"


@pytest.mark.parametrize("parameters", [None, 3, "hidden", [1]])
def test_parameters_that_are_no_mapping(tmp_path: Path, parameters: object) -> None:
    path = written(tmp_path, recipe(parameters=parameters))
    for overrides in ({}, {"seq": 4}):
        with pytest.raises(DocumentError) as caught:
            load_graph(path, **overrides)
        assert list(issues(caught)) == ["$.parameters"]


def test_missing_parts_of_a_recipe() -> None:
    with pytest.raises(DocumentError) as caught:
        expand({"schema": "dfopt/graph/3", "workload": "transformer"})
    assert set(issues(caught)) == {"$.name", "$.parameters"}


def test_schema_is_checked_for_both_ways() -> None:
    missing = recipe()
    del missing["schema"]
    with pytest.raises(DocumentError) as caught:
        expand(missing)
    assert list(issues(caught)) == ["$.schema"]
    with pytest.raises(SchemaVersionError):
        expand(recipe(schema="dfopt/graph/4"))
    with pytest.raises(SchemaVersionError):
        expand({"schema": "dfopt/system/1", "name": "x"})


# --- the zoos -----------------------------------------------------------------------------------------------


def test_zoo_names() -> None:
    assert {
        "gemma-2-27b", "gemma-2-9b", "gemma-3-27b-text", "gpt2-small", "gpt3-175b", "gpt3-1t", "llama-2-13b",
        "llama-2-70b", "llama-2-7b", "llama-3.1-405b", "llama-3.1-70b", "llama-3.1-8b", "llama-3.2-1b", "llama-3.2-3b",
        "llama-68m", "megatron-530b", "mistral-7b", "mistral-nemo-12b", "qwen2.5-72b", "qwen2.5-7b", "qwen3-32b",
        "qwen3-8b",
    } <= set(zoo("graphs"))  # fmt: skip
    assert {"a100-8", "h100-8", "sn10-8-ring", "sn10-8-torus", "sn30-1024-2dtorus"} <= set(zoo("systems"))


@pytest.mark.parametrize("name", zoo("graphs"))
def test_every_graph_of_the_zoo_loads(name: str) -> None:
    graph = load_graph(name)
    assert graph.name == name
    assert graph.source and graph.description


@pytest.mark.parametrize(("name", "published"), [("gpt3-175b", 175e9), ("gpt3-1t", 1008e9), ("gpt-100t", 100e12)])
def test_published_parameter_counts(name: str, published: float) -> None:
    """Without embedding and biases 12 h^2 a layer: 174 B and 1.007 T of the published 175 B and 1008 B."""
    graph = load_graph(name)
    weights = graph.repeat * sum(weight_elements(kernel) for kernel in graph.kernels if kernel.pass_ == "forward")
    assert weights == pytest.approx(published, rel=0.01)


def test_the_flop_of_the_gpt_of_a_hundred_trillion_parameters() -> None:
    # of one evaluation in LLM/3d_memory of github.com/fengqian-ayce/DFModel at f9cda5e
    assert sum(int(flop(kernel)) for kernel in load_graph("gpt-100t").kernels) == 3225531575173120


@pytest.mark.parametrize(
    ("name", "shape", "peak"),
    [  # chips per dim, and peak FLOP/s as in DFModel, sections VI and VII, and the NVIDIA datasheets
        ("sn10-8-ring", (8,), 307.2e12),
        ("sn10-8-torus", (4, 2), 307.2e12),
        ("sn30-1024-2dtorus", (8, 128), 614.4e12),
        ("a100-8", (8,), 312e12),
        ("h100-8", (8,), 989.5e12),
    ],
)
def test_system_shapes(name: str, shape: tuple[int, ...], peak: float) -> None:
    system = load_system(name)
    assert tuple(dim.size for dim in system.network) == shape
    assert system.chip.peak_flops == peak


@pytest.mark.parametrize("kind", ["graphs", "systems"])
def test_every_number_of_the_zoo_has_a_comment(kind: Any) -> None:
    from dfopt.documents.zoo import find

    bare = []
    for name in zoo(kind):
        for line in find(kind, name).read_text().splitlines():
            key, _, value = line.partition(":")
            if value.strip()[:1].isdigit() and "#" not in line and key != "description":
                bare.append((name, line))
    assert bare == []


@pytest.mark.parametrize(
    "code",
    [
        "import sys, dfopt.workloads; sys.exit('dfopt.workloads.transformer' in sys.modules)",
        "import sys, dfopt; dfopt.load_graph('gpt2-small', phase='training', recompute='full'); "
        "sys.exit('networkx' in sys.modules)",
    ],
)
def test_what_takes_long_to_import_is_imported_when_used(code: str) -> None:
    assert (
        subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=False).returncode
        == 0
    )


def test_the_index_of_a_copy_is_its_own() -> None:
    graph = load_graph("gpt2-small")
    assert graph.index()["Add_2"] == 17
    shorter = graph.model_copy(update={"kernels": graph.kernels[:3], "tensors": (), "carried": ()})
    assert list(shorter.index()) == [kernel.name for kernel in graph.kernels[:3]]
    assert graph == load_graph("gpt2-small") and graph.digest() == load_graph("gpt2-small").digest()


def test_a_hugging_face_config_is_no_document(tmp_path: Path) -> None:
    """Other tools' files are recognised and answered in one line."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "vocab_size": 128256}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(DocumentError) as caught:
        load_any(str(path))
    said = str(caught.value)
    assert "\n" not in said
    assert "found a Hugging Face config of llama" in said and "`dfopt import hf`" in said
