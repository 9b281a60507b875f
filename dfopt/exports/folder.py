"""Folders that exports write, and the way back: the same mapping from a tool's arguments and the result beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dfopt.documents.files import check_writable, folder_of, write_text
from dfopt.documents.result import Result
from dfopt.errors import DocumentError, Issue, PlanError, did_you_mean, shown
from dfopt.exports.decisions import decisions_of
from dfopt.exports.tool import Exported, exported
from dfopt.exports.tools import TOOLS
from dfopt.frontends.megatron.arguments import Arguments
from dfopt.frontends.megatron.launch_files import option, read, words_of

LEFT_OUT = "not-expressed.txt"
"""The file that lists what a tool cannot say."""
_RESULT = "result.json"


def export(result: Result, tool: str, path: str = "<result>") -> Exported:
    """Export a result's mapping as arguments of a training tool.

    Parameters
    ----------
    result
        The result.
    tool : str
        Name of the tool, a key of ``TOOLS``.
    path : str
        Name of the result's file, for messages.

    Raises
    ------
    PlanError
        If there is no such tool.
    DocumentError
        If the result is of a graph that trains nothing, or the tool would not start.
    """
    if tool not in TOOLS:
        remedy = did_you_mean(tool, TOOLS)
        raise PlanError(f"export: expected one of {', '.join(TOOLS)}, found {tool!r}{remedy and f' ({remedy})'}")
    decisions, title = decisions_of(result, path), TOOLS[tool].title
    if refused := list(TOOLS[tool].refuses(decisions)):
        what = ((issue.where.removeprefix("$."), issue.message, f"solve with {issue.remedy}") for issue in refused)
        issues = [Issue("$.plan", f"{title} would not start: {name}: {text}", remedy) for name, text, remedy in what]
        raise DocumentError(path, issues)
    return exported(TOOLS[tool], decisions)


def files_of(tool: str) -> tuple[str, ...]:
    """Names of the files that an export writes, arguments first; empty for an unknown tool."""
    return (TOOLS[tool].file, LEFT_OUT, _RESULT) if tool in TOOLS else ()


def write_export(tool: str, path: str | Path, folder: str | Path) -> list[str]:
    """Write the arguments of a tool, what they cannot express, and the result; return lines that describe it.

    Parameters
    ----------
    tool : str
        Name of the tool, a key of ``TOOLS``.
    path, folder
        File of the result, and the folder to write to.
    """
    result = Result.load(path)
    translation = export(result, tool, str(path))
    title, file = translation.tool.title, translation.tool.file
    target = folder_of(folder)
    chips = decisions_of(result, str(path)).chips
    first = f"{title}, for {chips} ranks; data, tokenizer, learning rate and number of steps are yours"
    lines = [f"{len(translation.left_out)} decisions of {result.plan.label} that {title} cannot express:"]
    lines += [f"  {line}" for line in translation.lines]
    texts = {file: translation.tool.write(translation.arguments, first), LEFT_OUT: "\n".join(lines) + "\n"}
    for name in (*texts, _RESULT):
        check_writable(target / name)
    for name, text in texts.items():
        write_text(target / name, text)
    result.dump(target / _RESULT)
    return [*(f"wrote {target / name}" for name in (*texts, _RESULT)), *lines]


def again(arguments: str | Path, path: str | Path) -> Result:
    """The result whose exported Megatron-LM arguments these are.

    Raises
    ------
    DocumentError
        With every option that says something else than the export of the result.
    """
    read(arguments)
    result = Result.load(path)
    (given, _), expected = words_of(arguments), export(result, "megatron", str(path)).arguments
    read_here = {option(field).removeprefix("--") for field in Arguments.model_fields}
    names = [*expected, *(name for name in given if name in read_here and name not in expected)]
    remedy = "leave --result out: then what the arguments do not say is searched"
    issues = [
        Issue(f"$.{name}", f"found {_shown(given, name)}, but {_shown(expected, name)} in the export of {path}", remedy)
        for name in names
        if given.get(name) != expected.get(name)
    ]
    if issues:
        raise DocumentError(str(arguments), issues)
    return result


def _shown(arguments: Mapping[str, Any], name: str) -> str:
    return shown(arguments[name]) if name in arguments else "nothing"


def write_again(arguments: str | Path, path: str | Path, folder: str | Path) -> list[str]:
    """Write mapping, graph, system and assumptions of a result, if the given arguments match its export.

    Parameters
    ----------
    arguments, path
        Files of the tool's arguments and of the result.
    folder
        Folder to write to.
    """
    result = again(arguments, path)
    target = folder_of(folder)
    documents = {
        "mapping": result.mapping, "graph": result.graph, "system": result.system, "assumptions": result.assumptions,
    }  # fmt: skip
    for name, document in documents.items():
        document.dump(target / f"{name}.yaml")
    words = " ".join(f"{target}/{name}.yaml" for name in ("mapping", "graph", "system"))
    command = f"  dfopt score {words} --assume {target}/assumptions.yaml"
    wrote = [f"wrote {target / name}.yaml" for name in documents]
    note = f"note: shardings, partitions and network dims are those of {path}; no argument says them"
    return [*wrote, note, "judge it with:", command]
