"""Arguments of Megatron-LM as they stand: options and values in shell words, in a launch script, or as YAML."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from dfopt.documents.base import issues_of
from dfopt.documents.files import read_text
from dfopt.documents.scalars import parse_scalar
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import DocumentError, Issue, did_you_mean, refuse, shown
from dfopt.frontends.megatron.arguments import Arguments
from dfopt.frontends.megatron.refusals import refusals
from dfopt.frontends.megatron.script import Script, unknown_in

_WORD = re.compile(r"--[A-Za-z0-9][\w-]*")

_GROUPS: Final = load_strict(Path(__file__).with_name("options.yaml"))
FLAGS, VALUES = ({name for text in _GROUPS[kind].values() for name in text.split()} for kind in ("flags", "values"))
"""Options that change nothing that a step costs: those without a value, and the others."""
UNPRICED: Final[Mapping[str, str]] = _GROUPS["unpriced"]
"""Options that change what a step costs in a way that is not priced: what each does."""
REFUSED: Final[Mapping[str, str]] = _GROUPS["refused"]
"""Options that change what a step costs, or the model, too much to be left out: what each asks for."""


_READ: Final = {field.replace("_", "-"): field for field in Arguments.model_fields}


def option(field: str) -> str:
    """Command-line option of a field.

    Examples
    --------
    >>> option("num_layers")
    '--num-layers'
    """
    return "--" + field.replace("_", "-")


def words_of(path: str | Path) -> tuple[dict[str, Any], list[str]]:
    """Options with their values from a file (name without dashes; true without a value), and notes.

    A file that ends in ``.yaml``, ``.yml`` or ``.json`` maps names to values; one that begins with an option has shell
    words, with comments behind ``#`` and lines that end in a backslash; any other one is a script (`Script`).
    """
    file, name = Path(path), str(path)
    if file.suffix.lower() in (".yaml", ".yml", ".json"):
        given = {str(key).removeprefix("--").replace("_", "-"): value for key, value in load_strict(file).items()}
        return {key: value for key, value in given.items() if value is not False and value is not None}, []
    text = read_text(file, most=1_000_000)  # many times of what a launch script has
    try:
        if not re.match(r"(?:\s|\\\n|#[^\n]*\n)*--", text):
            return _of_script(text, name)
        return _options(shlex.split(text.replace("\\\n", " "), comments=True), name), []
    except ValueError as error:
        refuse(name, f"cannot be read as shell words: {error}", "close the quotation")


def _of_script(text: str, name: str) -> tuple[dict[str, Any], list[str]]:
    """Options of the command of a script that trains."""
    script = Script()
    script.run(text)
    trains = [command for command in script.commands if not _READ.keys().isdisjoint(map(_key, command.words))]
    if len(trains) != 1:
        what = "Python programs with options such as --num-layers"
        remedy = "name a file that begins with options, or a script that starts one program, such as torchrun x.py ..."
        refuse(name, f"found {len(trains)} {what}, expected one", remedy)
    (command,) = trains
    notes = [f"defaults that the script has: {', '.join(f'{key}={value}' for key, value in script.defaults.items())}"]
    launched = dict(itertools.pairwise(re.sub("[=\\s]", " ", " ".join(command.launcher)).replace("-", "_").split()))
    each = [launched.get(f"__{field}", "") for field in ("nproc_per_node", "nnodes")]
    if all(count.isdecimal() for count in each):
        notes.append(f"the script starts {int(each[0]) * int(each[1])} ranks, of a system of as many chips")
    return _options(command.words, name), notes[not script.defaults :]


def _key(word: str) -> str:
    return word.partition("=")[0].removeprefix("--").replace("_", "-")


def _options(words: list[str], name: str) -> dict[str, Any]:
    """Options of shell words: what follows one up to the next is its value, or its values."""
    given: dict[str, list[str]] = {}
    last: list[str] | None = None
    issues = []
    for word in words:
        _, equals, value = word.partition("=")
        key = _key(word)
        if _WORD.fullmatch(word.partition("=")[0]):
            if key in given:
                issues.append(Issue(f"$.{key}", "found twice", "keep one of them"))
            last = given[key] = [value] if equals else []
        elif last is None or (last and unknown_in(word)):
            what = ", ".join(unknown_in(word)) or shown(word)
            issues.append(Issue("$", f"found {what}, expected an option such as --num-layers", "take it out"))
        else:
            last.append(word)
    for key, values in given.items():
        if (names := [name for value in values for name in unknown_in(value)]) and key not in VALUES:
            remedy = "write its value, or a default as in ${NAME:-8}"
            issues.append(Issue(f"$.{key}", f"found {', '.join(names)}, which only a shell knows", remedy))
    if issues:
        raise DocumentError(name, issues)
    many = {key: [parse_scalar(value) for value in values] for key, values in given.items()}
    return {key: values[0] if len(values) == 1 else values or True for key, values in many.items()}


def read(path: str | Path) -> tuple[Arguments, list[str], list[str]]:
    """Arguments as Megatron-LM completes them, notes on what is not modelled, and on what costs nothing.

    One `DocumentError` has all that is wrong or cannot be said.

    File that errors name for missing arguments. Megatron-LM would derive a missing global batch from the number of
    chips, which no argument states, so that the batch is required here.
    """
    given, notes = words_of(path)
    given = {key: value for key, value in given.items() if value != _GROUPS["usual"].get(key)}
    issues = list(_unread(given))
    data = {_READ[key]: value for key, value in given.items() if key in _READ}
    try:
        arguments = Arguments.model_validate(data)
    except ValidationError as error:
        wrong = issues_of(Arguments, data, error)
        raise DocumentError(str(path), [*issues, *(_as_option(issue) for issue in wrong)]) from None
    issues += refusals(arguments)
    if issues:
        raise DocumentError(str(path), issues)
    if arguments.sequence_parallel and arguments.tensor_model_parallel_size == 1:
        notes.append("--sequence-parallel is turned off: there is no tensor parallelism")
    if unpriced := [f"--{key} ({UNPRICED[key]})" for key in given if key in UNPRICED]:
        notes.append(f"not priced: {', '.join(unpriced)}")
    free = [f"--{key}" for key in given if key in FLAGS | VALUES]
    return _settled(arguments), notes, [f"without effect on what a step costs: {', '.join(free)}"] if free else []


def _settled(a: Arguments) -> Arguments:
    """Arguments with what Megatron-LM itself makes of some that are older, or idle."""
    changes = {
        "sequence_parallel": a.sequence_parallel and a.tensor_model_parallel_size > 1,
        "recompute_granularity": "selective" if a.recompute_activations else a.recompute_granularity,
        "position_embedding_type": "rope" if a.use_rotary_position_embeddings else a.position_embedding_type,
    }
    return a.model_copy(update=changes)


def _unread(given: Mapping[str, Any]) -> Iterator[Issue]:
    """Options that are refused, or that nobody knows, and values of those that have none."""
    names = [*_READ, *FLAGS, *VALUES, *UNPRICED, *REFUSED]
    for key, value in given.items():
        if key in REFUSED:
            message = f"found {REFUSED[key]}, which is not read"
            yield Issue(f"$.{key}", message, "leave it out to ask what a step costs without it")
        elif key not in names:
            remedy = did_you_mean(key, names, "leave it out if a step costs the same without it")
            yield Issue(f"$.{key}", "found an option that is not known", remedy)
        elif (key in FLAGS) != (value is True) and key in FLAGS | VALUES:
            expected = "no value" if key in FLAGS else "a value"
            yield Issue(f"$.{key}", f"found {shown(value)}, expected {expected}", "write it as Megatron-LM reads it")


def _as_option(issue: Issue) -> Issue:
    """An issue of a field, about the option that it holds."""
    name = issue.where.replace("_", "-")
    missing = issue.message == "the key is missing"
    return Issue(name, "it is missing", f"add --{name[2:]}") if missing else Issue(name, issue.message, issue.remedy)
