"""Builders that write a graph from a few parameters, and the door through which graphs are loaded.

A graph file holds explicit ``kernels`` and ``tensors``, or ``workload: NAME`` with ``parameters``; both end
as the same `Graph`. A workload is a module here with a class ``Parameters`` and a function ``build``, which takes those
and what the graph says of itself; `WORKLOADS` names them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack

from pydantic import create_model, model_validator

from dfopt.documents.base import Named, Part
from dfopt.documents.graph import Graph
from dfopt.documents.json_schema import schema_of_forms
from dfopt.documents.kinds import is_model_config
from dfopt.documents.names import in_documents
from dfopt.documents.published import Counts, Figure, Published, figures
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.zoo import find, is_path, zoo
from dfopt.errors import DocumentError, Issue, did_you_mean, json_path, refuse, shown
from dfopt.machines.replace import replaced
from dfopt.workloads.recompute import some_recomputed, unused, ways_of

if TYPE_CHECKING:
    from dfopt.keywords import Parameters

__all__ = [
    "WORKLOADS",
    "Workload",
    "expand",
    "given_parameters",
    "graph_schema",
    "load_graph",
    "load_variants",
    "parameters_of",
    "sizes_of",
]


class _Recipe(Named):
    """A graph file that names a workload; `_recipe_of` adds the type of its parameters.

    Attributes
    ----------
    workload : e.g. transformer
        Name of the builder that makes the graph from ``parameters``, such as transformer, decoder, stack or fft.
    published : e.g. {parameters: 8030000000, source: model card}
        Sizes of the model that its makers publish. `dfopt check` compares its own counts with them. None: it compares
        nothing.
    """

    SCHEMA: ClassVar[str] = Graph.SCHEMA
    EARLIER: ClassVar[tuple[str, ...]] = Graph.EARLIER

    workload: str
    published: Published | None = None

    @model_validator(mode="before")
    @classmethod
    def _published_apart(cls, data: Any) -> Any:
        """Earlier files gave the parameters that are published among those of the workload."""
        inside = data.get("parameters") if isinstance(data, Mapping) else None
        if not isinstance(inside, Mapping) or "published_parameters" not in inside or "published" in data:
            return data
        kept = {name: value for name, value in inside.items() if name != "published_parameters"}
        return {**data, "parameters": kept, "published": {"parameters": inside["published_parameters"]}}


@dataclass(frozen=True)
class Workload:
    """A builder of graphs; its module is imported on first use.

    Examples
    --------
    >>> WORKLOADS["transformer"](hidden=8, heads=2, head_dim=4, seq=16).name
    'transformer'
    """

    module: str

    @property
    def parameters(self) -> type[Part]:
        """Document part of its parameters."""
        form: type[Part] = import_module(self.module).Parameters
        return form

    def __call__(self, name: str = "", description: str = "", source: str = "", **parameters: Any) -> Graph:
        """Build the graph.

        Parameters
        ----------
        name, description, source
            As in `Graph`; called after the workload if no name is given.
        **parameters
            Fields of `parameters`.

        Raises
        ------
        pydantic.ValidationError
            For a parameter that is unknown, missing or out of range.
        """
        build: Callable[..., Graph] = import_module(self.module).build
        about = {"name": name or self.module.rpartition(".")[2], "description": description, "source": source}
        document = self.parameters(**parameters)
        which = getattr(document, "recompute", "none")
        others, some = ways_of(which)
        graph = build(document if some is None else self.parameters(**{**parameters, "recompute": others}), **about)
        if graph.trains and (idle := unused(graph, which)):
            message = f"found recompute: {which}, but no kernel of {about['name']} is {' or '.join(idle)}"
            refuse(about["name"], message, "leave it out")
        if some is None or not graph.trains:
            return graph
        if not graph.folded:
            message = f"found recompute: {some}/{others} of a single layer, or of layers that are drawn one by one"
            refuse(about["name"], message, "say it of several layers, of which one is drawn")
        return some_recomputed(graph, build(self.parameters(**{**parameters, "recompute": some}), **about))


WORKLOADS: Final = {
    name: Workload(f"dfopt.workloads.{name}")
    for name in ("transformer", "calculon", "decoder", "stack", "lstm", "dlrm", "fft", "hpl")
}

# Only what may change without touching a kernel's shape: an explicit graph's shapes hold its microbatch.
_FREE_IN_EXPLICIT: Final = ("batch", "repeat")


def expand(data: Mapping[str, Any], path: str | os.PathLike[str] = "<data>") -> Graph:
    """The graph of a graph file's parsed data, explicit or by workload.

    Parameters
    ----------
    data
        Explicit ``kernels`` and ``tensors``, or ``name``, ``workload`` and ``parameters`` (``description``
        and ``source`` are optional).
    path
        Name of the file in errors.

    Raises
    ------
    DocumentError
        With every issue, at paths such as ``$.parameters.hidden``; `GraphError` if an explicit graph is no
        DAG.

    Examples
    --------
    >>> sizes = {"hidden": 8, "heads": 2, "head_dim": 4, "seq": 16, "layers": 3}
    >>> recipe = {"name": "tiny", "workload": "transformer", "parameters": sizes}
    >>> expand({"schema": "dfopt/graph/3", **recipe}).repeat
    3
    """
    file = os.fspath(path)
    if not isinstance(data, Mapping) or "workload" not in data:
        return Graph.from_data(data, file)
    workload, recipe = _recipe(data, file)
    parameters = recipe.parameters.model_dump(exclude_unset=True)  # type: ignore[attr-defined]
    return workload(recipe.name, recipe.description, recipe.source, **parameters)


def sizes_of(data: Mapping[str, Any], path: str | os.PathLike[str] = "<data>") -> tuple[Figure, ...]:
    """Computed sizes of a model next to published ones; empty for a workload without ``counts``.

    A workload that counts has a function ``counts`` of its parameters.

    Examples
    --------
    >>> sizes = {"hidden": 8, "heads": 2, "head_dim": 4, "seq": 16, "layers": 3}
    >>> recipe = {"schema": "dfopt/graph/3", "name": "tiny", "workload": "transformer", "parameters": sizes}
    >>> [(figure.name, figure.computed) for figure in sizes_of(recipe)]
    [('parameters', 2304), ('active_parameters', 2304), ('kv_bytes_per_token', 96)]
    """
    if "workload" not in data:
        return ()
    file = os.fspath(path)
    workload, recipe = _recipe(data, file)
    published, counts = recipe.published, _counts(workload, recipe)
    if counts is None and published is not None:
        message = f"found sizes of a {recipe.workload} graph, whose parameters are not counted"
        raise DocumentError(file, [Issue("$.published", message, "leave it out")])
    for name in published.beside if published else ():
        part = find("graphs", name)
        other = _counts(*_recipe(load_strict(part), str(part)))
        if counts is None or other is None:
            issue = Issue("$.published.beside", f"found {name!r}, whose parameters are not counted", "leave it out")
            raise DocumentError(file, [issue])
        counts = Counts(*map(sum, zip(counts, other, strict=True)))
    return figures(published, counts) if counts else ()


def _counts(workload: Workload, recipe: _Recipe) -> Counts | None:
    counts = getattr(import_module(workload.module), "counts", None)
    return counts(recipe.parameters) if counts else None  # type: ignore[attr-defined]


def _recipe(data: Mapping[str, Any], file: str) -> tuple[Workload, _Recipe]:
    workload = _workload(data.get("workload"), file)
    if isinstance(written := data.get("parameters"), Mapping):
        data = {**data, "parameters": in_documents(written)}
    return workload, _recipe_of(workload).from_data(data, file)


def load_graph(name_or_path: str | os.PathLike[str], **overrides: Unpack[Parameters]) -> Graph:
    """Load a graph from the zoo or a file, with some of its parameters replaced.

    Parameters
    ----------
    name_or_path
        A name in the zoo, or a path. The ``config.json`` of a Hugging Face model is read as
        :func:`dfopt.frontends.hf.recipe` does, and so is that in a folder.
    **overrides
        Parameters of the file's workload, or by its path a field inside one, such as ``dtypes.kv``; of a graph with
        explicit kernels, only ``batch`` and ``repeat``.
        The graph's description names the changes.

    Raises
    ------
    DocumentError
        With every issue; `NotInZoo` for a name that is neither a file nor in the zoo.

    Examples
    --------
    >>> graph = load_graph("gpt3-175b", mode="training", batch=64)
    >>> len(graph.kernels), graph.batch, graph.description[-39:]
    (41, 64, "(loaded with batch=64, mode='training')")
    """
    return expand(*_read(name_or_path, overrides))


def _read(name_or_path: str | os.PathLike[str], overrides: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The data of a graph file with some parameters replaced, and its path."""
    inside = os.path.join(os.path.expanduser(os.fspath(name_or_path)), "config.json")
    named = os.fspath(name_or_path) in zoo("graphs")
    path = find("graphs", inside if os.path.isfile(inside) and not named else name_or_path)
    if path.suffix.lower() == ".onnx":
        refuse(str(path), "found an ONNX model, expected a graph", "turn it into one with `dfopt import onnx`")
    data = load_strict(path, unbounded=is_model_config)
    if is_model_config(data):
        data = import_module("dfopt.frontends.hf").read(path, data)
    if overrides:
        data = overridden(data, overrides, str(path))
    return data, path


def load_variants(name_or_path: str | os.PathLike[str], **overrides: Any) -> tuple[Graph, ...]:
    """The graph of :func:`load_graph`, followed by graphs that compute the same in other ways.

    A workload that knows some has a function ``variants``: of its parameters, the changes that draw the others.

    Examples
    --------
    >>> [graph.name for graph in load_variants("gpt2-small")]
    ['gpt2-small']
    """
    data, path = _read(name_or_path, overrides)
    graph = expand(data, path)
    workload = _workload(data["workload"], os.fspath(path)) if "workload" in data else None
    ways = getattr(import_module(workload.module), "variants", None) if workload else None
    if workload is None or ways is None or graph.variant is None:
        return (graph,)
    others = ways(workload.parameters(**data["parameters"]))
    more = (expand({**data, "parameters": {**data["parameters"], **change}}, path) for change in others)
    return (graph, *more)


def given_parameters(name_or_path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Parameters in the file of a graph; empty for explicit kernels.

    Examples
    --------
    >>> given_parameters("gpt2-small")["layers"]
    12
    """
    parameters = _read(name_or_path, {})[0].get("parameters", {})
    return parameters if isinstance(parameters, Mapping) else {}


def parameters_of(name_or_path: str | os.PathLike[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the parameters of a graph's workload, and of those that its file fixes; empty for explicit kernels.

    A user's file also fixes how a model is run; files of the zoo and configurations of models fix only its
    architecture.

    Examples
    --------
    >>> allowed, fixed = parameters_of("gpt2-small")
    >>> "recompute" in allowed, "microbatch" in allowed, "microbatch" in fixed
    (True, True, False)
    """
    data, path = _read(name_or_path, {})
    if "workload" not in data:
        return frozenset(), frozenset()
    workload, recipe = _recipe(data, os.fspath(path))
    given: Part = recipe.parameters  # type: ignore[attr-defined]
    of_model = not is_path(os.fspath(name_or_path)) or is_model_config(load_strict(path, unbounded=is_model_config))
    return frozenset(workload.parameters.model_fields), frozenset(() if of_model else given.model_fields_set)


def graph_schema() -> dict[str, Any]:
    """JSON Schema of a graph file: explicit kernels, or one of the workloads with its parameters."""
    schema = schema_of_forms("Graph", Graph, *map(_recipe_of, WORKLOADS.values()))
    for name, form in zip(WORKLOADS, schema["anyOf"][1:], strict=True):
        form["properties"]["workload"] = {"const": name}
    return schema


def _workload(name: object, file: str) -> Workload:
    if isinstance(name, str) and name in WORKLOADS:
        return WORKLOADS[name]
    remedy = did_you_mean(name, WORKLOADS) if isinstance(name, str) else ""
    choices = f"workloads: {', '.join(sorted(WORKLOADS))}"
    issue = Issue("$.workload", f"unknown workload {shown(name)}", f"{remedy} {choices}".strip())
    raise DocumentError(file, [issue])


@cache
def _recipe_of(workload: Workload) -> type[_Recipe]:
    """The recipe with this workload's parameters, so that one strict validation finds every issue."""
    return create_model("Recipe", __base__=_Recipe, parameters=(workload.parameters, ...))


def overridden(data: dict[str, Any], overrides: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Data of a graph file with some of its parameters replaced, as :func:`load_graph` does.

    ``phase`` may also be ``forward`` or ``training``, which workloads call their mode. ``osl`` is the output length
    of a decode step that stands halfway through the answer: it has ``isl + osl // 2`` cached tokens.
    """
    overrides = in_documents(overrides)
    if "osl" in overrides:
        if overrides.get("phase") not in ("decode", "verify") or "context" in overrides:
            refuse(file, "found osl without phase: decode, or with context", "give phase: decode, isl and osl")
        prompt = overrides.get("seq", data.get("parameters", {}).get("seq", 0))
        context = int(prompt) + int(overrides["osl"]) // 2
        overrides = {key: value for key, value in overrides.items() if key not in ("osl", "seq")} | {"context": context}
    if overrides.get("phase") in ("forward", "training"):
        overrides = {"mode": overrides["phase"], **{key: value for key, value in overrides.items() if key != "phase"}}
    if "workload" in data:
        allowed = list(_workload(data["workload"], file).parameters.model_fields)
        owner = f"workload {data['workload']!r}"
    else:
        allowed, owner = list(_FREE_IN_EXPLICIT), "a graph with explicit kernels"
    prefix = ("parameters",) if "workload" in data else ()
    issues = []
    for path in overrides:
        key, _, deeper = path.partition(".") if prefix else (path, "", "")
        if key not in allowed:
            fixed = not prefix and key in Graph.model_fields
            remedy = "it is part of the file's own figures: edit the file" if fixed else did_you_mean(key, allowed)
            message = f"cannot be replaced: {owner} takes {', '.join(allowed)}"
            issues.append(Issue(json_path(*prefix, key, *filter(None, deeper.split("."))), message, remedy))
    if not prefix and "repeat" in overrides and isinstance(data.get("sections"), list | tuple):
        sections, data = data["sections"], {key: value for key, value in data.items() if key != "sections"}
        if [len(section.get("layers", [0])) for section in sections if isinstance(section, Mapping)] != [1]:
            message = f"cannot be replaced: the graph has {len(sections)} sections"
            issues.append(Issue("$.repeat", message, "edit the file"))
    if issues:
        raise DocumentError(file, issues)
    changes = ", ".join(f"{key}={value!r}" for key, value in sorted(overrides.items()))
    if isinstance(text := data.get("description", ""), str):
        data = {**data, "description": f"{text} (loaded with {changes})".strip()}
    if not prefix:
        return {**data, **overrides}
    written = data.get("parameters", {})
    if not isinstance(written, Mapping):
        return data  # is left for the strict validation to report
    written = in_documents(written)
    inner = {f"parameters.{path}": value for path, value in overrides.items() if "." in path}
    parts: dict[str, Any] = {path.partition(".")[0]: {} for path in overrides if "." in path}
    plain = {path: value for path, value in overrides.items() if "." not in path}
    return replaced({**data, "parameters": {**parts, **written, **plain}}, inner, file)
