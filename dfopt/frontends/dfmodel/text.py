"""DFModel's own input, ``user_input/setup.txt``: a ``DSE`` message of its ``setup.proto`` in protobuf's text format.

It is read as the data of a case. What the program fills in itself (shards, depths of buffers) is left out; a field that
could change a cost and is not understood is refused by its name. As proto3 has it, a kernel without ``config`` is fixed
to partition 0. A setup without a workload is one evaluation of its graph.

Sources: ``src/setup.proto`` and ``src/parse_input.py`` of fengqian-ayce/DFModel (04f93d5); for the format
https://protobuf.dev/reference/protobuf/textformat-spec.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import DocumentError, Issue, did_you_mean, refuse, shown
from dfopt.frontends.dfmodel.case import Data, block_of

_TOKEN: Final = re.compile(
    r"""(?P<gap>(?:\s|\#[^\n]*|[:,;])+) | (?P<quote>["'])(?P<string>[^\n]*?)(?P=quote) | (?P<open>[{<])
    | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.]) | (?P<word>[A-Za-z_]\w*) | (?P<close>[}>])""",
    re.VERBOSE,
)
_TABLE: Final = load_strict(Path(__file__).with_suffix(".yaml"))
_FILLED: Final = re.compile(
    r"topological_number|sharding|(shard|input|lane)_\w+|(start|end)Name|buffer_depth|tensor_size"
)


def parsed(text: str, name: str) -> Data:
    """Fields of a protobuf text message; kernels and connections are lists.

    Examples
    --------
    >>> parsed('system { num_chip: 8 r { link_bw_x: 2.5 par_x: "TP" } }  # a ring', "setup.txt")
    {'system': {'num_chip': 8, 'r': {'link_bw_x': 2.5, 'par_x': 'TP'}}}
    """
    levels, field, place = [Data()], "", 0
    while place < len(text):
        match, line = _TOKEN.match(text, place), text.count("\n", 0, place) + 1
        kind = match.lastgroup if match else None
        token = match[kind] if match and kind else ""
        expected = (
            ("gap", "word", *(["close"] if len(levels) > 1 else [])) if not field else tuple(_TOKEN.groupindex)[:-1]
        )
        if match is None or kind not in expected:
            refuse(name, f"line {line}: found {shown(text[place : place + 20])}, expected a field", "or its value")
        place = match.end()
        if kind == "close":
            levels.pop()
        elif kind != "gap" and not field:
            field = token
        elif kind != "gap":
            value = _value(kind, token)
            if field in ("kernels", "connections"):
                levels[-1].setdefault(field, []).append(value)
            elif levels[-1].setdefault(field, value) is not value:
                refuse(name, f"line {line}: {field} is given twice", "keep one of them")
            levels += [value] if kind == "open" else []
            field = ""
    if field or len(levels) > 1:
        refuse(name, f"the text ends within {field or 'a message'}", "is the file cut off?")
    return levels[0]


def _value(kind: str, token: str) -> Any:
    if kind == "number":
        return int(token) if token.lstrip("+-").isdecimal() else float(token)
    return Data() if kind == "open" else {"true": True, "false": False}.get(token, token)


def _flat(kernel: Data) -> Data:
    """A kernel with the fields of its variant."""
    variant = next((name for name in _TABLE["variants"] if name in kernel), "elementwise_input1")
    fields = {**kernel, **kernel.get(variant, {})}
    return {"config": 0, **{name: value for name, value in fields.items() if name != variant}, "variant": variant}


def _issues(path: str, message: Data, word: int) -> Iterator[Issue]:
    """What of a message is not understood, and weights that are not as large as their product says."""
    fields, whose = _TABLE["fields"][path].split(), f" of {message['name']}" if "name" in message else ""
    for field in message:
        if field not in (*fields, "variant") and not _FILLED.fullmatch(field):
            text = f"not understood{whose}, and could change a cost"
            yield Issue(f"{path}.{field}", text, did_you_mean(field, fields))
    weight = math.prod(message.get(size, 1) for size in ("outer", "M", "K")) * word
    if not math.isclose(message.get("weight_tensor_size", weight), weight, rel_tol=1e-6):
        text = f"found {message['weight_tensor_size']}{whose}, expected outer M K word bytes, {weight}"
        yield Issue(f"{path}.weight_tensor_size", text)


def case_of(text: str, name: str) -> Data:
    """Case data of a setup in protobuf text format.

    Raises
    ------
    DocumentError
        With every field that is not understood, or does not fit the others.
    """
    setup = parsed(text, name)
    drawn, system, execution = (
        setup.get("dataflow_graph", {}),
        setup.get("system", {}),
        setup.setdefault("execution", {}),
    )
    kernels, connections = [_flat(kernel) for kernel in drawn.get("kernels", ())], drawn.get("connections", [])
    messages = [("$", setup), ("$.system", system), ("$.system.accelerator", system.get("accelerator", {}))]
    messages += [("$.execution", execution), *(("$.dataflow_graph.kernels", kernel) for kernel in kernels)]
    messages += [("$.dataflow_graph.connections", connection) for connection in connections]
    issues = [issue for path, message in messages for issue in _issues(path, message, execution.get("word", 2))]
    if issues:
        raise DocumentError(name, issues)
    if block_of(execution) is None:
        execution["graph"] = {}
    sizes = {kernel["id"]: kernel["output_tensor_size"] for kernel in kernels}
    tensors = [{"src": c["startIdx"], "dst": c["endIdx"], "bytes": sizes[c["startIdx"]], **c} for c in connections]
    kernels = [{_TABLE["names"].get(field, field): value for field, value in kernel.items()} for kernel in kernels]
    return {"setup": setup, "graph": {"template": "of its own", "kernels": kernels, "tensors": tensors}}
