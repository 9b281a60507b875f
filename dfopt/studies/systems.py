"""The systems of a study: from the zoo, from files, or composed from parts, each under the labels of the frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from dfopt.documents.study import Choice, PartsEntry, SystemEntry, label_of
from dfopt.documents.system import System
from dfopt.errors import DocumentError, Issue, SystemSpecError, json_path
from dfopt.machines.compose import compose, load_system

__all__ = ["Machine", "machines"]


@dataclass(frozen=True)
class Machine:
    """A system with its labels by column (system, chip, memory, stack and so on), and the graphs that it is for."""

    system: System
    labels: Mapping[str, str | None]
    graphs: tuple[str, ...] = ()


def machines(entries: Sequence[SystemEntry | PartsEntry], folder: Path, path: str) -> tuple[Machine, ...]:
    """All systems of a study, in order.

    Parameters
    ----------
    entries : sequence
        Systems given as a whole, and products of parts.
    folder : Path
        Where the paths of system files start.
    path : str
        Name of the study in errors.

    Raises
    ------
    DocumentError
        With the place in the study of the entry that cannot be made.
    """
    found: list[Machine] = []
    for index, entry in enumerate(entries):
        where = json_path("systems", index)
        if isinstance(entry, SystemEntry):
            made = [_whole(entry, folder, path, where)]
        else:
            made = list(_composed(entry, path, where))
        for machine in made:
            if any(_same(machine, other) for other in found):
                message = f"the system {machine.labels['system']!r} is there twice"
                raise DocumentError(path, [Issue(where, message, "give it, or one of its parts, another label")])
            found.append(machine)
    return tuple(found)


def _same(one: Machine, other: Machine) -> bool:
    """Whether some graph would run on both under one label."""
    apart = one.graphs and other.graphs and not set(one.graphs) & set(other.graphs)
    return one.labels["system"] == other.labels["system"] and not apart


def _whole(entry: SystemEntry, folder: Path, path: str, where: str) -> Machine:
    beside = folder / entry.system
    source = beside if beside.is_file() else entry.system
    label = entry.name
    system = _made(path, where, label, lambda: load_system(source, entry.set))
    shape = " x ".join(f"{dim.topology} {dim.size}" for dim in system.network) or "one chip"
    labels = {
        "system": label,
        "chip": system.chip.name,
        "memory": None,
        "stack": None if system.stack is None else system.stack.name,
        "link": None,
        "topology": shape,
    }
    return Machine(system, labels, entry.graphs)


def _composed(entry: PartsEntry, path: str, where: str) -> Iterator[Machine]:
    for chip, memory, stack, link, topology in product(
        entry.chips, entry.memories or (None,), entry.stacks or (None,), entry.links or (None,), entry.topologies
    ):
        labels = {
            "chip": label_of(chip),
            "memory": None if memory is None else label_of(memory),
            "stack": None if stack is None else label_of(stack),
            "link": None if link is None else label_of(link),
            "topology": label_of(topology),
        }
        name = "-".join(label for label in labels.values() if label is not None)
        parts = {"chip": _use(chip), "memory": None if memory is None else _use(memory)}
        parts |= {} if stack is None else {"stack": _use(stack)}
        network = _network(topology, link)

        def make(name: str = name, parts: dict[str, Any] = parts, network: Any = network) -> System:
            return compose(name, **parts, network=network, overrides=entry.set)

        yield Machine(_made(path, where, name, make), {"system": name, **labels}, entry.graphs)


def _use(choice: Choice) -> Any:
    """What ``compose`` takes: a name, or data."""
    if isinstance(choice, str):
        return choice
    return list(choice.use) if isinstance(choice.use, tuple) else choice.use


def _network(topology: Choice, link: Choice | None) -> Any:
    """What a system file says of its network: a topology, and the links that it is made of."""
    shape = _use(topology)
    if isinstance(shape, str):
        shape = {"part": shape}
    return shape if link is None or not isinstance(shape, dict) else {**shape, "links": _use(link)}


def _made(path: str, where: str, label: str, make: Callable[[], System]) -> System:
    """A system; what is wrong with it becomes an issue of the study."""
    try:
        return make()
    except (DocumentError, SystemSpecError) as error:
        issues = [Issue(where, f"system {label}: {each.where}: {each.message}", each.remedy) for each in error.issues]
        raise DocumentError(path, issues) from None
