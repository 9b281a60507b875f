"""Write the page of model types from the tables of the importer: ``python tests/guide/model_types.py --write``."""

from __future__ import annotations

import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "dfopt" / "guide" / "models.md"
GROUPS = {
    "all layers alike": ("alike", "beside", "decoders"),
    "experts": ("experts",),
    "latent attention, or sinks and experts": ("latent",),
    "compressed attention": ("compressed",),
    "local and global layers, block-sparse attention": ("gemma", "windows", "heads"),
    "attention and MLP in parallel, learned positions": ("gpt",),
    "delta rules": ("delta",),
    "Mamba": ("mamba",),
    "attention with Mamba or convolutions": ("hybrids",),
    "encoders; a decoder with its encoder": ("encoders",),
}
HEAD = """# Models

After this page you know whether dfopt reads your model's `config.json`. `model_type` in that file names its type.

dfopt reads these types. `python tests/guide/model_types.py --write` makes this page from the tables of the importer.

| layers | types |
| --- | --- |
"""
WRAPPED = """
If a model also reads images or sound, dfopt reads its text model. The description of the graph names the missing parts.

| wrapper | types |
| --- | --- |
| images, sound, video | """
REFUSED = """
It refuses these types, because they need a part that it does not model:

| type | needs |
| --- | --- |
"""
TAIL = """
A new type is one entry of a table: see [Extend it](extend.md#read-another-model-type).

## Counts

dfopt counts parameters, active parameters and the bytes that it keeps of a token. `dfopt import hf` prints them.
Modules that predict further tokens are separate layers that `predict: true` counts. Head and embedding have the type
of the activations. Scales of rows, tokens and whole tensors are not counted.
"""


def page() -> str:
    """The page of model types."""
    from dfopt.frontends.hf.families import FAMILIES, SORTS
    from dfopt.frontends.hf.wrapped import NOT_DRAWN, WRAPPERS

    def listed(names: list[str]) -> str:
        return ", ".join(f"`{name}`" for name in sorted(names))

    rows, placed = [], set[str]()
    for words, sorts in GROUPS.items():
        names = [name for sort in sorts for name in SORTS[sort]]
        placed.update(names)
        rows.append(f"| {words} | {listed([name for name in names if not name.endswith('_text')])} |")
    rest = [name for name in FAMILIES if name not in placed and not name.endswith("_text")]
    rows += [f"| others | {listed(rest)} |"] if rest else []
    refused = [f"| `{name}` | {reason} |" for name, reason in sorted(NOT_DRAWN.items()) if not name.endswith("_text")]
    return (
        f"{HEAD}"
        + "\n".join(rows)
        + f"\n{WRAPPED}{listed([*WRAPPERS])} |\n{REFUSED}"
        + "\n".join(refused)
        + f"\n{TAIL}"
    )


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")
