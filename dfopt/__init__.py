"""dfopt: optimal mappings of workload graphs onto systems of chips, with a proof and an independent judge.

>>> import dfopt as df
>>> df.zoo("systems")[:2]                             # what comes with it: graphs, systems, chips, stacks, ...
['a100-4096', 'a100-512']
>>> result = df.optimize("gpt2-small", "sn10-8-ring")  # zoo names, paths of files, or documents
>>> result.status, round(result.utilization, 3)
('optimal', 0.9)

Six functions do nearly everything; ``help(dfopt.optimize)`` and so on tell the rest:

========================================== ===============================================================
``zoo(kind)``                              names of graphs, systems and parts
``load_graph(name, **parameters)``         a graph of the zoo or a file, such as ``mode="training"``
``load_system(name)``                      a system of the zoo or a file
``optimize(graph, system)``                the fastest mapping, its figures and its proof: a ``Result``
``evaluate(mapping, graph, system)``       every figure of anyone's mapping: a ``Score``
``sweep(study)``                           many of them, in parallel and resumable: ``Runs``, with ``.frame()``
========================================== ===============================================================

A result has ``.step_time_s``, ``.utilization``, ``.gap``, ``.mapping``, ``.score`` and ``.dump("result.json")``;
``verify`` checks its proof, ``dfopt.plot`` draws it. Documents (``Graph``, ``System``, ``Mapping``, ``Plan``,
``Assumptions``, ``Stack``, ``Study``, ``Result``, ``Score``) are read with ``.load(path)``. Errors are under
``DfoptError``: see ``help(dfopt.errors)``. ``dir(dfopt)`` lists every name, ``dfopt guide python`` explains them.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# Names are loaded on first use, so that `dfopt --help` does not wait for numpy and HiGHS. The stub says where they are.
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOMES = {name: (home, there) for home, there, name in re.findall(r"^from (\S+) import (\w+) as (\w+)", _STUB, re.M)}

# What `help(dfopt)` prints in full and `import *` brings: dir(dfopt) has all names.
__all__ = ["evaluate", "load_graph", "load_system", "optimize", "sweep", "zoo"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dfopt' has no attribute {name!r}")
    home, there = _HOMES[name]
    return getattr(import_module(home), there, None) or import_module(f"{home}.{there}")


def __dir__() -> list[str]:
    return [*_HOMES, "__version__"]
