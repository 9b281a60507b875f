"""Systems from parts: files that name their chip, memory, links and topology, and the same for programs.

A composed system file::

    schema: dfopt/system/1
    name: sn30-8-ring
    chip: sn30                          # or {part: sn30, compute_utilization: 0.8}, a path, or a chip's own fields
    memory: ddr4                        # or {part: hbm3-stack, count: 5}; may be left out if the chip has a dram
    network: {topology: torus, sizes: [4, 2], links: pcie-4}
    stack: hybrid-vault                 # or {part: hybrid-vault, ambient: 35 degC}; its memory, if none is given here
    scale_out: infiniband-ndr           # the link of each chip to a switch between nodes, for sizes beyond this one

``network`` is a topology, or the part of one (``{part: torus-2d-1024, links: pcie-4}``), or a list of dims, each
with its fields or with a ``link``. ``links`` is one for all dims, a list with one for each, or, for a topology
with roles, a mapping from role to link. A part with further keys is that part with these fields replaced; nothing
(``null``) takes a field away, such as the ``peak`` of a chip that gets more tiles. Paths are relative to the
file, or to the current folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, Field, create_model

from dfopt.documents.base import Named
from dfopt.documents.json_schema import schema_of_forms
from dfopt.documents.network import Slices
from dfopt.documents.parts import TopologyForm
from dfopt.documents.stack import Stack
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.system import Chip, ChipForm, ChipStack, Dram, Link, Memory, NetworkDim, System
from dfopt.documents.zoo import find
from dfopt.errors import DocumentError, Issue, SystemSpecError, json_path
from dfopt.machines.fields import with_fields
from dfopt.machines.references import ReferenceResolver, folder_of
from dfopt.machines.stacks import memory_issues, memory_of, stack_data
from dfopt.machines.topologies import expand
from dfopt.units import Seconds


class _Composed(Named):
    """A system file that names parts, after its references are replaced; `_form_of` adds the parts.

    Attributes
    ----------
    collective_overhead : e.g. 5 us
        Time that software takes to start a collective of any size.
    slices : e.g. [{topology: [ring, ring], sizes: [[4, 4], [4, 8]]}]
        Sizes in which the maker sells the system, for machines such as TPU pods. None: any size, except that rings and
        lines keep their own.
    scale_out : e.g. {bandwidth: 50 GB/s, latency: 2 us}
        Link from each chip to a switch between several systems of this kind, as a part or with its fields. None: there
        are no larger systems.
    """

    SCHEMA: ClassVar[str] = System.SCHEMA

    collective_overhead: Seconds = Field(default=0.0, ge=0)
    slices: tuple[Slices, ...] | None = None
    scale_out: Link | None = None


def load_system(name_or_path: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None) -> System:
    """Load a system from the zoo or a file, explicit or composed from parts.

    Parameters
    ----------
    name_or_path
        A name in the zoo, or a path.
    overrides
        See `with_fields`.

    Raises
    ------
    DocumentError
        With every issue of the file; `NotInZoo` for a name that is neither a file nor in the zoo; `SystemSpecError`
        (which is not a `DocumentError`) for a system whose parts do not fit each other.

    Examples
    --------
    >>> load_system("sn10-8-ring").chips
    8
    >>> load_system("sn10-8-ring", {"network.ring.size": 16}).chips
    16
    """
    path = find("systems", name_or_path)
    system = expand_system(load_strict(path), path)
    return with_fields(system, overrides, str(path)) if overrides else system


def expand_system(data: Mapping[str, Any], path: str | os.PathLike[str] = "<data>") -> System:
    """System of a system file's parsed data, explicit or composed of parts.

    Parameters
    ----------
    data
        An explicit system, or one that names parts.
    path
        The file, for errors and for paths relative to it.

    Raises
    ------
    DocumentError
        With every issue, at paths such as ``$.memory.part``; `SystemSpecError` if parts do not fit each other.

    Examples
    --------
    >>> network = {"topology": "torus", "sizes": [4, 2], "links": "pcie-4"}
    >>> recipe = {"name": "mine", "chip": "sn10", "memory": "ddr4", "network": network}
    >>> [dim.size for dim in expand_system({"schema": "dfopt/system/1", **recipe}).network]
    [4, 2]
    """
    file = os.fspath(path)
    if not isinstance(data, Mapping) or not _is_composed(data):
        return System.from_data(data, file)
    resolver = ReferenceResolver(folder_of(file))
    expanded = dict(data)
    if "chip" in expanded:
        expanded["chip"] = resolver.part("chips", expanded["chip"], "$.chip")
    for key, resolve in (("memory", resolver.memory), ("network", resolver.network)):
        if key in expanded:
            expanded[key] = resolve(expanded[key], f"$.{key}")
    if "scale_out" in expanded:
        expanded["scale_out"] = resolver.part("links", expanded["scale_out"], "$.scale_out")
    if "stack" in expanded:
        expanded["stack"] = stack_data(resolver, expanded["stack"], "$.stack", file)
    if resolver.issues:
        raise DocumentError(file, resolver.issues)
    form: Any = _form_of(expanded).from_data(expanded, file)
    memories = _memories(form, data, file)
    try:
        parts = {"chip": Chip(**{**dict(form.chip), **memories}), "network": _dims(form.network, file)}
        return System(**{name: value for name, value in form if name in System.model_fields} | parts)
    except SystemSpecError as error:  # a check of the whole, which does not know the file
        raise SystemSpecError(file, error.issues) from None


def compose(
    name: str | None = None,
    *,
    chip: str | Mapping[str, Any] | Chip,
    memory: str | Mapping[str, Any] | Dram | None = None,
    network: str | Mapping[str, Any] | Sequence[Mapping[str, Any] | NetworkDim] = (),
    stack: str | Mapping[str, Any] | Stack | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> System:
    """Compose a system from parts by name or by value; see the top of this module.

    Parameters
    ----------
    name
        Name of the system; by default made of the parts' names.
    chip, memory, network
        A part's name, a path, or data with units as in a file; or a model. ``memory`` goes before the chip's own.
    stack
        The chip as a stack of dies, named in the same ways; its memory is the chip's if no ``memory`` is given.
    overrides
        See `with_fields`.

    Raises
    ------
    DocumentError
        With every issue, at the places where a file would have it; `SystemSpecError` as for files.

    Examples
    --------
    >>> made = compose(chip="sn30", memory="ddr4", network={"part": "torus-2d-1024", "links": "pcie-4"})
    >>> made.name, made.chips, made.chip.dram.bandwidth
    ('sn30-ddr4-torus-2d-1024-pcie-4', 1024, 200000000000.0)
    """
    parts = {"chip": _data(chip), "network": _data(network)}
    parts |= {key: _data(value) for key, value in (("memory", memory), ("stack", stack)) if value is not None}
    words = _words(*(parts.get(key) for key in ("chip", "memory", "stack", "network")))
    named = name or "-".join(words) or "composed"
    system = expand_system({"schema": System.SCHEMA, "name": named, **parts}, named)
    return with_fields(system, overrides, named) if overrides else system


def system_schema() -> dict[str, Any]:
    """JSON Schema of a system file: explicit, or composed of parts by reference."""
    reference = str | dict[str, Any]
    composed = create_model(
        "Composed",
        __base__=_Composed,
        chip=(reference, ...),
        memory=(reference | None, None),
        network=(reference | list[dict[str, Any]], []),
        stack=(reference | None, None),
        scale_out=(reference | None, None),
    )
    return schema_of_forms("System", System, composed)


def _is_composed(data: Mapping[str, Any]) -> bool:
    """Whether anything is named; all else is an explicit system, and wrong if it is none."""
    chip, network, stack = data.get("chip"), data.get("network"), data.get("stack")
    dims = network if isinstance(network, list | tuple) else []
    return (
        isinstance(chip, str)
        or (isinstance(chip, Mapping) and "part" in chip)
        or isinstance(stack, str)
        or (isinstance(stack, Mapping) and ("part" in stack or (isinstance(chip, Mapping) and "dram" not in chip)))
        or "memory" in data
        or "memories" in data
        or isinstance(network, str | Mapping)
        or isinstance(data.get("scale_out"), str)
        or any(isinstance(dim, Mapping) and "link" in dim for dim in dims)
    )


def _memories(form: Any, data: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The fields of the chip about its memories: one, or a list that stands in place of what its part comes with."""
    listed = form.memories if form.memories is not None else form.chip.memories
    if listed is None:
        return {"dram": _memory(form, data, file), "memories": None}
    where = "$.memories" if form.memories is not None else "$.chip.memories"
    given = {"memory": form.memory, "stack": form.stack} | ({} if form.memories else {"chip.dram": form.chip.dram})
    for key, other in given.items():
        if other is not None:
            raise DocumentError(file, [Issue(where, f"found beside {key}, expected one of them", f"leave {key} out")])
    return {"dram": None, "memories": listed}


def _memory(form: Any, data: Mapping[str, Any], file: str) -> Dram:
    """The memory of the chip: the system's, or the stack's, or what the chip's part comes with."""
    chip, stack = data.get("chip"), form.stack
    written = isinstance(chip, Mapping) and chip.get("dram") is not None  # here, and not in the file of a part
    given: Dram | None = form.memory or (form.chip.dram if written or stack is None else None)
    if given is None:
        if stack is None:
            message = f"the key is missing, and chip {form.chip.name!r} comes without a memory"
            raise DocumentError(file, [Issue("$.memory", message, "name one: `dfopt list memories`")])
        return memory_of(stack, form.chip.dram)
    issues = memory_issues(given, stack, "$.memory" if form.memory else "$.chip.dram") if stack else []
    if issues:
        raise SystemSpecError(file, issues)
    return given


def _form_of(data: Mapping[str, Any]) -> type[_Composed]:
    """The document that the data must fit, of the same shape as what the user wrote."""
    network, links = data.get("network", ()), None
    if isinstance(network, Mapping):
        links = network.get("links")
    by_shape: Any = Link
    if isinstance(links, list | tuple):
        by_shape = tuple[Link, ...]
    elif isinstance(links, Mapping) and isinstance(network.get("roles"), list | tuple) and "bandwidth" not in links:
        by_shape = dict[str, Link]
    return _form(by_shape, isinstance(network, Mapping), data.get("stack") is not None)


@cache
def _form(by_shape: Any, wired: bool, stacked: bool) -> type[_Composed]:
    """A model per shape, made once: a study composes hundreds of systems of the same few shapes.

    The part of a stack of dies takes longest to make, and most systems have none.
    """
    wiring = create_model("Wiring", __base__=TopologyForm, links=(by_shape, ...))
    return create_model(
        "Composed",
        __base__=_Composed,
        chip=(ChipForm, ...),
        memory=(Dram | None, None),
        memories=(tuple[Memory, ...] | None, None),
        stack=(ChipStack | None if stacked else None, None),
        network=(wiring if wired else tuple[NetworkDim, ...], ()),
    )


def _dims(network: Any, file: str) -> tuple[NetworkDim, ...]:
    """The dims of a network that has been validated."""
    if isinstance(network, tuple):
        return network
    links = _links(network, file)
    try:
        return expand(network.topology, network.sizes, links, network.names, taper=network.taper)
    except (DocumentError, SystemSpecError) as error:
        issues = [Issue("$.network" + issue.where[1:], issue.message, issue.remedy) for issue in error.issues]
        raise DocumentError(file, issues) from None


def _links(network: Any, file: str) -> tuple[Link, ...]:
    """One link for each dim."""
    count = len(network.sizes)
    if isinstance(network.links, Link):
        return (network.links,) * count
    if isinstance(network.links, tuple):
        if len(network.links) != count:
            message = f"found {len(network.links)} links, expected one for each of the {count} sizes"
            raise DocumentError(file, [Issue("$.network.links", message, "or a single link for all")])
        return network.links
    roles = network.roles
    issues = [
        Issue(json_path("network", "links", role), "the topology has no such role", f"roles: {', '.join(roles)}")
        for role in network.links
        if role not in roles
    ]
    issues += [
        Issue(json_path("network", "links", role), "the key is missing", f"give the link of role {role!r}")
        for role in dict.fromkeys(roles)
        if role not in network.links
    ]
    if not issues and len(roles) != count:
        issues = [Issue("$.network.roles", f"found {len(roles)} roles, expected one for each of the {count} sizes")]
    if issues:
        raise DocumentError(file, issues)
    return tuple(network.links[role] for role in roles)


def _data(value: Any) -> Any:
    """Models as data, as in a file."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, list | tuple):
        return [_data(item) for item in value]
    return {key: _data(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _words(*parts: Any) -> list[str]:
    """Words for the name of a composed system: the names in its references."""
    words = []
    for part in parts:
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, Mapping):
            for key in ("part", "topology", "links"):
                words += [part[key]] if isinstance(part.get(key), str) else []
            sizes = part.get("sizes")
            words += ["x".join(map(str, sizes))] if isinstance(sizes, list | tuple) else []
    return [word.replace("/", "_") for word in words]
