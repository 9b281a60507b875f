"""``dfopt new``: a commented file of a kind to start from, whose comments are the texts of its fields."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, get_args

from dfopt.cli.common import app, echo, errors
from dfopt.cli.outputs import check_output
from dfopt.errors import PlanError, did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel

_WIDTH = 100
_MOST = 25  # fields of a part that are all listed: of a request, `dfopt solve --help-all` does it


@app.command()
def new(kind: str, output: Path | None = None, force: bool = False) -> None:
    """Write a commented file to start from.

    Arguments:
        kind (KIND): Kind of file: system, graph, study, stack, design or question.

    Output:
        output (-o FILE.yaml): File to write, such as my-system.yaml; default: standard output.

    Examples:
        dfopt new system -o my-system.yaml
        dfopt new study > my-study.yaml
        dfopt new question -o question.yaml
    """
    with errors():
        from dfopt.documents.files import write_text
        from dfopt.documents.kinds import KINDS
        from dfopt.documents.strict_yaml import load_strict
        from dfopt.documents.zoo import find

        starters = load_strict(Path(__file__).with_name("starters.yaml"))
        if kind not in starters:
            raise PlanError(f"new: found {kind!r} ({did_you_mean(kind, starters, ', '.join(starters))})")
        check_output("--output", output, (".yaml", ".yml"))
        data = starters[kind]
        if isinstance(data, str):
            data = load_strict(find(f"{kind}s", data)) | {"name": f"my-{kind}"}  # type: ignore[arg-type]
        model = KINDS[kind]
        head = f"# A {kind} to start from. `dfopt explain NAME` explains a field, `dfopt check FILE` finds mistakes."
        text = "\n".join([head, *_commented(model, {"schema": model.SCHEMA, **data}, "", True)]) + "\n"
        if output is None:
            echo(text.rstrip())
        else:
            write_text(output, text)
            echo(f"dfopt: wrote {output}", err=True)


def _commented(model: type[BaseModel], data: dict[str, Any], indent: str, every: bool) -> Iterator[str]:
    """The lines of a mapping with a comment above each key; with ``every``, other fields follow as comments."""
    from dfopt.documents.descriptions import fields_of

    fields = {field.name: field for field in fields_of(model)}
    for name in [*data, *(name for name in fields if every and name not in data)]:
        field, value = fields.get(name), data.get(name, ())
        if field is not None:
            unit = f" Unit: {field.unit}." * (field.unit not in ("", "no unit"))
            text = f"{field.summary}{unit}".replace("``", "`")
            yield from wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        inner = None if field is None else next(_models(field.annotation, value), None)
        if name not in data:
            example = fields[name].example
            yield f"{indent}# {name}: {example if len(example) < _WIDTH else '...'}"
        elif inner is None:
            yield f"{indent}{name}: {_flow(value)}"
        elif isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from _commented(inner, value, f"{indent}  ", every and len(fields_of(inner)) < _MOST)
        else:
            first, *others = value
            yield f"{indent}{name}:"
            lines = list(_commented(inner, first, f"{indent}    ", False))
            yield from [f"{indent}  - {lines[0].strip()}", *lines[1:]]
            yield from (f"{indent}  - {_flow(other)}" for other in others)


def _models(annotation: Any, value: Any) -> Iterator[type[BaseModel]]:
    """Classes with a field for every key of a mapping, or of the first one of a list."""
    from dfopt.documents.base import Part

    first = value[0] if isinstance(value, list) and value else value
    if isinstance(annotation, type) and issubclass(annotation, Part):
        yield from [annotation] * (isinstance(first, dict) and set(first) <= set(annotation.model_fields))
    for part in get_args(annotation):
        yield from _models(part, value)


def _flow(value: Any) -> str:
    import yaml

    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    return text.removesuffix("...\n").strip()
