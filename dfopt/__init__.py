"""dfopt: optimal mappings of workload graphs onto systems of chips, with a proof and an independent judge.

>>> import dfopt as df
>>> df.list("systems")[:2]                            # what comes with it: graphs, systems, chips, stacks, ...
['a100-4096', 'a100-512']
>>> result = df.solve("gpt2-small", "sn10-8-ring")     # zoo names, paths of files, or documents
>>> result.status, round(result.utilization, 3)
('optimal', 0.9)

Functions do what the commands of their names do; ``help(dfopt.solve)`` and so on explain them:

========================================== ===============================================================
``list(kind)``                             names of graphs, systems and parts
``load_graph(name, **parameters)``         a graph of the zoo or a file, such as ``phase="training"``
``load_system(name)``                      a system of the zoo or a file
``solve(graph, system)``                   the fastest mapping, its figures and its proof: a ``Result``
``score(mapping, graph, system)``          every figure of anyone's mapping: a ``Score``
``show(document)``, ``compare(*results)``  the text that the command line prints
``check(document)``                        whether a document, or every claim of a result, holds
``sweep(study)``                           many of them, in parallel and resumable: ``Runs``, with ``.frame()``
========================================== ===============================================================

``dfopt.explore``, ``derive``, ``heat`` and ``plot`` go on from there. A result has ``.step_time_s``, ``.mapping``,
``.score``, ``.dump("result.json")``, and as pandas objects ``.summary()``, ``.partitions``, ``.memory``,
``.breakdown`` and ``.plans_frame``. Documents (``Graph``, ``System``, ``Mapping``, ``Plan``, ``Assumptions``,
``Stack``, ``Study``, ``Result``, ``Score``) are read with ``.load(path)``. Errors (``dfopt.errors``) are a
``DfoptError``. ``dir(dfopt)`` lists every name, ``dfopt guide python`` explains them. ``optimize`` still works.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from dfopt.documents.html import SUMMARY
from dfopt.documents.names import ACTS

__version__ = "0.1.0"

# Names are loaded on first use, so that `dfopt --help` does not wait for numpy and HiGHS. The stub says where they are.
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOMES = {name: (home, there) for home, there, name in re.findall(r"^from (\S+) import (\w+) as (\w+)", _STUB, re.M)}
_EARLIER = {old: act.python for act in ACTS for old in act.earlier}

# What `help(dfopt)` prints in full and `import *` brings: dir(dfopt) has all names.
__all__ = ["list", "load_graph", "load_system", "score", "show", "solve", "sweep"]


def __getattr__(name: str) -> Any:
    if _EARLIER.get(name, name) not in _HOMES:
        raise AttributeError(f"module 'dfopt' has no attribute {name!r}")
    home, there = _HOMES[_EARLIER.get(name, name)]
    return getattr(import_module(home), there, None) or import_module(f"{home}.{there}")


def __dir__() -> list[str]:
    return [*_HOMES, "__version__"]


class _Package(ModuleType):
    """The package, in which ``heat`` and ``show`` stay functions when packages of these names are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


def _lines(result: Any) -> list[tuple[str, str]]:
    """An answer as the command line prints it, for notebooks."""
    answer = import_module("dfopt.show.answer")
    return [answer.headline(result), *answer.summary(result)]


sys.modules[__name__].__class__ = _Package
SUMMARY.append(_lines)
