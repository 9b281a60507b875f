"""A system with some of its fields replaced: what sweeps over a figure of a machine do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from dfopt.documents.system import System
from dfopt.errors import DocumentError, Issue, did_you_mean, json_path

__all__ = ["with_fields"]


def with_fields(system: System, fields: Mapping[str, Any], name: str | None = None) -> System:
    """The system with some fields replaced, validated like a file.

    Parameters
    ----------
    system
        What to start from.
    fields
        ``chip.sram.capacity`` -> value with its unit, as in a file; a dim is meant by its name or position:
        ``network.x.size``. Nothing takes an optional field away.
    name
        What errors call it; the system's own name if not given.

    Raises
    ------
    DocumentError
        For a field that does not exist or a value that does not fit.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> faster = with_fields(load_system("sn10-8-ring"), {"network.ring.link_bandwidth": "50 GB/s"})
    >>> faster.network[0].link_bandwidth
    50000000000.0
    """
    file = name or system.name
    data = system.to_data()
    for field, value in fields.items():
        here: Any = data
        path: list[str | int] = []
        *above, last = field.split(".")
        for step in above:
            path.append(_key(here, step, path, file))
            if isinstance(here, dict) and step not in here:
                remedy = did_you_mean(step, [key for key, item in here.items() if isinstance(item, dict | list)])
                _fail(file, path, "there is no such part", remedy)
            here = here[path[-1]]
        here[_key(here, last, path, file)] = value  # an unknown key at the end is found by the validation below
    return System.from_data(data, file)


def _key(here: Any, step: str, above: Sequence[str | int], file: str) -> str | int:
    """The key or the position that a step means."""
    if isinstance(here, list):
        names = [dim["name"] for dim in here]
        if step in names:
            return names.index(step)
        if step.isdigit() and int(step) < len(here):
            return int(step)
        remedy = did_you_mean(step, names, f"dims: {', '.join(names) or 'none'}")
        _fail(file, [*above, step], "there is no such network dim", remedy)
    if not isinstance(here, dict):
        _fail(file, [*above, step], f"{json_path(*above)} has no fields of its own", "check the spelling")
    return step


def _fail(file: str, steps: Sequence[str | int], message: str, remedy: str) -> NoReturn:
    raise DocumentError(file, [Issue(json_path(*steps), message, remedy)])
