"""Load a document of any kind from a file or a zoo name: what ``show``, ``check`` and ``score`` start with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dfopt.documents.assumptions import PROFILES
from dfopt.documents.base import Document
from dfopt.documents.graph import Graph
from dfopt.documents.kinds import KINDS, kind_of
from dfopt.documents.mapping import Mapping as Mapped
from dfopt.documents.passes import way_of
from dfopt.documents.published import Figure
from dfopt.documents.question import Question
from dfopt.documents.result import Result
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.system import Source, System
from dfopt.documents.zoo import KINDS as ZOOS
from dfopt.documents.zoo import ZooKind, find, is_path, zoo
from dfopt.errors import DocumentError, Issue, NotInZoo, PlanError, SystemSpecError, close_matches, refuse
from dfopt.machines.compose import expand_system
from dfopt.machines.fields import with_fields
from dfopt.machines.replace import replaced
from dfopt.machines.sizes import sized, split_size
from dfopt.machines.stacks import expand_stack
from dfopt.workloads import expand, load_graph, overridden, parameters_of, sizes_of

if TYPE_CHECKING:
    from dfopt.documents.design import Design

_OF_DESIGN: Final = "design."  # how fields of a design begin, beside those of the system that it makes


def load_any(name_or_path: str, overrides: dict[str, Any] | None = None) -> Document:
    """Load a graph or system of the zoo, an assumption profile, or a file of any kind.

    A name of the zoo goes before a file of that name, which is ``./NAME``. A name that is on several shelves of the zoo
    can have its shelf before it: ``stacks/hbm3``. ``overrides`` are workload parameters of a graph. Raises
    `DocumentError` with everything that is wrong with the file, or for overrides of something that is no graph.

    Examples
    --------
    >>> load_any("sn10-8-ring").chips
    8
    """
    return load_sized(name_or_path, overrides)[0]


def load_sized(name_or_path: str, overrides: dict[str, Any] | None = None) -> tuple[Document, tuple[Figure, ...]]:
    """Load a document like :func:`load_any`, and the computed and published sizes of a graph.

    Examples
    --------
    >>> graph, (parameters, *_) = load_sized("llama-3.1-8b")
    >>> parameters.computed, parameters.published
    (8030261248, 8030000000)
    """
    if split_size(name_or_path)[1] is not None and not overrides:
        return load_system(name_or_path), ()
    kind, path, data = _located(name_or_path)
    if overrides and kind != "graph":
        message = f"a document of kind {kind} has no parameters, found {', '.join(overrides)}"
        refuse(name_or_path, message, "--param belongs to graphs built from a workload")
    if overrides:
        data = overridden(data, overrides, str(path))
    return _reader(kind)(data, str(path)), sizes_of(data, path) if kind == "graph" else ()


def _reader(kind: str) -> Callable[..., Any]:
    """What reads a kind of document; files of some may be written in terms of others."""
    if kind in ("technology", "technology-part", "design"):  # most runs have none, and they take long to import
        from dfopt.machines import designs, technologies

        return {
            "technology": technologies.expand_technology, "technology-part": technologies.expand_part,
            "design": designs.expand_design,
        }[kind]  # fmt: skip
    own: dict[str, Callable[..., Any]] = {"graph": expand, "system": expand_system, "stack": expand_stack}
    return own.get(kind) or KINDS[kind].from_data


def _located(name_or_path: str) -> tuple[str, Path, dict[str, Any]]:
    """Kind, path and data of what a text names."""
    shelf = _shelf_of(name_or_path)
    if shelf is None and name_or_path not in PROFILES and is_path(name_or_path):
        path = find("graphs", name_or_path)
        data = load_strict(path)  # once: it may be a pipe
        return kind_of(data, str(path)), path, data
    if shelf is None and name_or_path in PROFILES:
        return "assumptions", Path(name_or_path), PROFILES[name_or_path].to_data()
    shelf = shelf or next((each for each in ZOOS if name_or_path in zoo(each)), None)
    if shelf is None:
        everything = [*(name for each in ZOOS for name in zoo(each)), *PROFILES]
        raise NotInZoo(name_or_path, close_matches(name_or_path, everything, 0.5), "|".join([*ZOOS, "assumptions"]))
    path = find(shelf, name_or_path.removeprefix(f"{shelf}/"))
    data = load_strict(path)
    return kind_of(data, str(path)), path, data


def _shelf_of(text: str) -> ZooKind | None:
    """The shelf that a text such as ``stacks/hbm3`` names, if the zoo has it."""
    shelf, _, name = text.partition("/")
    return next((kind for kind in ZOOS if kind == shelf and name in zoo(kind)), None)


def graph_under(
    mapping: Mapped, result: Result | None, name_or_path: str | os.PathLike[str], **overrides: Any
) -> Graph:
    """The named graph in the variant that a mapping needs: its microbatch and recomputation.

    Parameters
    ----------
    mapping
        The mapping.
    result : Result, optional
        Its result. Parameters of its question count, if that is about the same name.
    name_or_path
        The graph.
    **overrides
        Parameters of the graph, which go first.

    Examples
    --------
    >>> from dfopt.documents.mapping import KernelMapping
    >>> from dfopt.documents.plan import Plan
    >>> plan, kernels = Plan(tp=1, pp=1, dp=2, microbatches=64), (KernelMapping(name="Q", partition=0),)
    >>> graph_under(Mapped(graph="gpt2-small", system="-", plan=plan, kernels=kernels), None, "gpt2-small").microbatch
    4
    """
    allowed, _ = parameters_of(name_or_path)
    question = None if result is None else result.question
    same = question is not None and question.graph == os.fspath(name_or_path)
    given = {**(question.parameters if same and question is not None else {}), **overrides}
    if result is not None and same:
        if "batch" in given and "batch" not in overrides:
            given["batch"] = result.graph.batch
        if result.graph.trains and "recompute" in allowed - overrides.keys():
            given["recompute"] = way_of(result.graph.variant)
    if "microbatch" in allowed - overrides.keys():
        smallest = load_graph(name_or_path, **{**given, "microbatch": 1})
        each, rest = divmod(smallest.batch, mapping.plan.microbatches * mapping.plan.copies)
        given = {**given, "microbatch": each} if each and not rest else {**given}
    return load_graph(name_or_path, **given)


def load_system(
    name_or_path: str | os.PathLike[str],
    overrides: Mapping[str, Any] | None = None,
    *,
    chips: int | None = None,
    nodes: int | None = None,
) -> System:
    """Load a system, or the system of a design, from the zoo or a file; optionally in another size.

    Parameters
    ----------
    name_or_path
        A name in the zoo, or a path of a system or a design. ``designs/NAME`` is a design of
        the zoo.
    overrides
        Fields of the system with their values, see `dfopt.machines.fields.with_fields`; those of a design begin with
        ``design.``, such as ``design.budgets.power``.
    chips, nodes
        Size of the system, as in `dfopt.machines.sizes.sized`. A name may say it too: ``h100-256:64``, or ``h100:64``
        of a family.

    Raises
    ------
    DocumentError
        With every issue of the file; `NotInZoo` for a name that is neither a file nor in the zoo; `SystemSpecError`
        (which is not a `DocumentError`) for a system whose parts do not fit each other, and for a design that makes
        none.

    Examples
    --------
    >>> load_system("sn10-8-ring").chips
    8
    >>> load_system("sn10-8-ring", {"network.ring.size": 16}).chips
    16
    >>> load_system("h100:64").chips, load_system("h100-8", nodes=2).chips
    (64, 16)
    """
    name, own = split_size(name_or_path)
    if own is not None and chips is not None:
        refuse(os.fspath(name_or_path), f"found a size beside {chips} chips", "give one of them")
    return system_from(load_source(name), overrides or {}, name, own if chips is None else chips, nodes)


def load_source(name_or_path: str | os.PathLike[str]) -> Source:
    """A system or design by name or path; ``designs/NAME`` selects the zoo's design."""
    name = os.fspath(name_or_path)
    if _shelf_of(name) == "designs":
        from dfopt.machines.designs import load_design

        return load_design(name.removeprefix("designs/"))
    path = find("systems", name_or_path)
    data = load_strict(path)  # once: it may be a pipe
    is_design = isinstance(data, Mapping) and str(data.get("schema", "")).startswith("dfopt/design/")
    return _reader("design")(data, path) if is_design else expand_system(data, path)


def system_from(
    source: Source, fields: Mapping[str, Any], name: str, chips: int | None = None, nodes: int | None = None
) -> System:
    """System of a source, resized and with some fields replaced.

    Parameters
    ----------
    source : System or Design
        Result of `load_source`.
    fields : mapping
        Fields by their paths, as in `load_system`. If one is the size of a dim, the other dims are sized to give the
        requested number of chips or nodes.
    name : str
        Name of the system in errors.
    chips, nodes : int, optional
        Requested size; by default its own.

    Examples
    --------
    >>> system_from(load_source("sn10-8-ring"), {"chip.dram.bandwidth": "1 TB/s"}, "mine").chip.dram.bandwidth
    1000000000000.0
    >>> [dim.size for dim in system_from(load_source("h100-256"), {"network.node.size": 4}, "mine", 64).network]
    [4, 16]
    """
    of_design = {key.removeprefix(_OF_DESIGN): value for key, value in fields.items() if key.startswith(_OF_DESIGN)}
    rest = {key: value for key, value in fields.items() if not key.startswith(_OF_DESIGN)}
    if isinstance(source, System):
        if of_design:
            message = f"found a system, which has no {' and no '.join(of_design)} of a design, expected a design"
            raise DocumentError(name, [Issue("$.design", message, "name a design here, or set fields of the system")])
        system = source
    else:
        from dfopt.documents.design import Design
        from dfopt.machines.designs import expand_design
        from dfopt.technology.as_system import derived_system

        assert isinstance(source, Design)
        design = expand_design(replaced(source.to_data(), of_design, name), name) if of_design else source
        try:
            system = derived_system(design)
        except SystemSpecError as error:  # which does not know the file
            raise SystemSpecError(name, error.issues) from None
    system = sized(system, chips, nodes)
    if not rest:
        return system
    changed = with_fields(system, rest, name)
    if (chips or nodes) and changed.chips != system.chips:
        changed = sized(changed, chips, nodes)
        if with_fields(changed, rest, name) != changed:
            message = f"found {system.chips} chips beside {', '.join(rest)}, which make another number"
            refuse(name, message, "leave one of them out")
    return changed


def as_system(given: System | Design | str | os.PathLike[str]) -> System:
    """A system itself, or that of a zoo name or path (also of a design)."""
    if isinstance(given, Source):
        return system_from(given, {}, given.name)
    return load_system(name_of(given, "system"))


def as_design(given: Design | str | os.PathLike[str]) -> Design:
    """A design itself, or that of a zoo name or path."""
    from dfopt.documents.design import Design
    from dfopt.machines.designs import load_design

    if isinstance(given, Design):
        return given
    name = name_of(given, "design")
    return load_design(name.removeprefix("designs/") if _shelf_of(name) == "designs" else name)


def name_of(given: object, what: str) -> str:
    """A zoo name or path as text; `PlanError` for other types."""
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    raise PlanError(f"found a value of type {type(given).__name__}, expected a {what}, a zoo name or a path")


def asked_in(path: str | os.PathLike[str]) -> Question:
    """Question that a result answers, with the result's documents.

    Raises
    ------
    DocumentError
        If the file is no result, or one of an earlier version that does not say what was asked.
    """
    result = load_mapping(path)[1]
    if result is None or result.question is None:
        actual = "a mapping" if result is None else "a result that does not say what was asked"
        refuse(os.fspath(path), f"found {actual}, expected a result of `dfopt solve -o`", "solve it again")
    asked = result.question
    own = {"graph": result.graph, "system": result.system, "assumptions": result.assumptions}
    return asked.model_copy(update={name: of for name, of in own.items() if getattr(asked, name) is None})


def load_mapping(path: str | os.PathLike[str]) -> tuple[Mapped, Result | None]:
    """Load a mapping, or the mapping of a result together with the result."""
    data, name = load_strict(Path(path)), os.fspath(path)
    if kind_of(data, name) == "result":
        result = Result.from_data(data, name)
        return result.mapping, result
    return Mapped.from_data(data, name), None
