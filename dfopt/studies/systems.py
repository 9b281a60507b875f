"""The systems of a study: from the zoo, from files, or composed from parts, each under the labels of the frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dfopt.documents.design import Design
from dfopt.documents.study import label_of
from dfopt.documents.study_entries import Choice, PartsEntry, SystemEntry
from dfopt.documents.system import System
from dfopt.documents.zoo import resolve_near
from dfopt.errors import DocumentError, GraphError, Issue, PlanError, SystemSpecError, json_path
from dfopt.library import load_source, system_from
from dfopt.machines.compose import compose
from dfopt.machines.sizes import split_size


@dataclass(frozen=True)
class Machine:
    """A system of a study with its labels by column, and the graphs that it applies to.

    Of one that a design makes, ``design`` is that, and ``set`` are the fields that the study replaces.
    """

    system: System
    labels: Mapping[str, str | None]
    graphs: tuple[str, ...] = ()
    design: Design | None = None
    set: Mapping[str, Any] = field(default_factory=dict)

    def changed(self, fields: Mapping[str, Any], name: str) -> System:
        """The system with some fields replaced; paths with the prefix ``design.`` refer to its design."""
        if self.design is None:
            return system_from(self.system, fields, name)
        return system_from(self.design, {**self.set, **fields}, name)


@contextmanager
def of_study(path: str, where: str, what: str) -> Iterator[None]:
    """Context manager that reports errors of derived documents as issues of the study.

    Parameters
    ----------
    path, where : str
        Name of the study's file, and the place in it that the documents are derived from.
    what : str
        What is derived, for messages.
    """
    try:
        yield
    except (DocumentError, GraphError, SystemSpecError) as error:
        issues = [Issue(where, f"{what}: {each.where}: {each.message}", each.remedy) for each in error.issues]
        raise DocumentError(path, issues) from None
    except PlanError as error:  # of a value that is read before any document
        raise DocumentError(path, [Issue(where, f"{what}: {error}", "correct it")]) from None
    except ValidationError as error:  # of a workload's builder
        message = error.errors(include_url=False)[0]["msg"]
        raise DocumentError(path, [Issue(where, f"{what}: {message}", "correct it")]) from None


def machines(entries: Sequence[SystemEntry | PartsEntry], folder: Path, path: str) -> tuple[Machine, ...]:
    """All systems of a study, in order.

    Parameters
    ----------
    entries : sequence of SystemEntry or PartsEntry
        As the study lists them.
    folder : Path
        Folder that paths of systems are relative to.
    path : str
        Name of the study in errors.

    Raises
    ------
    DocumentError
        With the place in the study of the entry that cannot be made.
    """
    listed: list[Machine] = []
    for index, entry in enumerate(entries):
        where = json_path("systems", index)
        new = _composed(entry, path, where) if isinstance(entry, PartsEntry) else _loaded(entry, folder, path, where)
        for machine in new:
            if any(_same(machine, other) for other in listed):
                message = f"the system {machine.labels['system']!r} is there twice"
                raise DocumentError(path, [Issue(where, message, "give it, or one of its parts, another label")])
            listed.append(machine)
    return tuple(listed)


def _same(machine: Machine, other: Machine) -> bool:
    """Whether some graph would run on both under one label."""
    disjoint = machine.graphs and other.graphs and not set(machine.graphs) & set(other.graphs)
    return machine.labels["system"] == other.labels["system"] and not disjoint


def _loaded(entry: SystemEntry, folder: Path, path: str, where: str) -> Iterator[Machine]:
    label = entry.label or entry.system
    name, chips = split_size(entry.system)
    with of_study(path, where, f"system {label}"):
        source = load_source(resolve_near("systems", folder, name))
        system = system_from(source, entry.set, entry.system, chips)
    shape = " x ".join(f"{dim.topology} {dim.size}" for dim in system.network) or "one chip"
    stack = None if system.stack is None else system.stack.name
    labels = {"system": label, "chip": system.chip.name, "memory": None, "stack": stack, "link": None}
    design = source if isinstance(source, Design) else None
    yield Machine(system, {**labels, "topology": shape}, entry.graphs, design, entry.set)


def _composed(entry: PartsEntry, path: str, where: str) -> Iterator[Machine]:
    parts: dict[str, Sequence[Choice | None]] = {
        "chip": entry.chips, "memory": entry.memories, "stack": entry.stacks, "link": entry.links,
        "topology": entry.topologies,
    }  # fmt: skip
    for chosen in product(*(choices or (None,) for choices in parts.values())):
        choices = dict(zip(parts, chosen, strict=True))
        labels = {part: None if choice is None else label_of(choice) for part, choice in choices.items()}
        name = "-".join(label for label in labels.values() if label is not None)
        used = {part: _use(choice) for part, choice in choices.items() if choice is not None}
        network, links = used.pop("topology"), used.pop("link", None)
        if isinstance(network, str):
            network = {"part": network}
        if links is not None and isinstance(network, dict):
            network = {**network, "links": links}
        with of_study(path, where, f"system {name}"):
            system = compose(name, **used, network=network, overrides=entry.set)
        yield Machine(system, {"system": name, **labels}, entry.graphs)


def _use(choice: Choice) -> Any:
    """What ``compose`` takes: a name, or data."""
    if isinstance(choice, str):
        return choice
    return list(choice.use) if isinstance(choice.use, tuple) else choice.use
