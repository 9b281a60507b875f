"""Configs of models that also see or hear: the config of the text model lies inside, and is what is read.

A wrapper's entry says which types of text models it holds, and which parts beside them are left out: towers for images
and sound, which run once for an image and are no layers of the text model. What is left out is said in the description
of the graph, whose parameters then are those of the text model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from dfopt.errors import DocumentError, Issue, did_you_mean, shown
from dfopt.frontends.hf.fields import Default, Entry
from dfopt.frontends.hf.rows import COSMETIC, EVERYWHERE
from dfopt.frontends.hf.tables import full_entry, table

__all__ = ["FRONTS", "NOT_DRAWN", "WRAPPERS", "TextConfig", "Wrapper", "text_of"]

_INHERITED: Final = ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config")
"""Fields that stand beside the text model's config or in it."""
FRONTS: Final = ("model.language_model.", "language_model.model.", "language_model.")
"""What the names of the text model's weights begin with, instead of ``model.``."""


class Wrapper(Entry):
    """How to find the text model's config within the config of one ``model_type``.

    Examples
    --------
    >>> WRAPPERS["llama4"].texts
    ('llama4_text',)
    """

    texts: tuple[str, ...] = ()
    parts: tuple[str, ...] = ("vision_config",)
    words: frozenset[str] = frozenset()
    what: str = "text model"  # what it holds
    inside: str = "text_config"  # the field that holds it
    drops: frozenset[str] = frozenset()  # fields in it that say something of the parts beside
    off: frozenset[str] = frozenset()  # fields in it that say something only where they are true
    classes: tuple[str, ...] = ()  # what models of this type are called that have another name than others
    thinker: str = ""  # the type of a wrapper that it holds itself, in `inside`
    flat: str = ""  # the type of the text model of a file that has its fields beside the parts, as older ones do


class _WrappersFile(Entry):
    """The file of wrappers."""

    wrappers: dict[str, Wrapper]
    words: frozenset[str]
    sizes_of_classes: dict[str, dict[str, Default]]
    not_drawn: dict[str, tuple[str, ...]]


def _read() -> _WrappersFile:
    data = table("wrappers")
    wrappers = data["wrappers"]
    return _WrappersFile.model_validate(data | {"wrappers": {name: full_entry(wrappers, name) for name in wrappers}})


_FILE: Final = _read()
WRAPPERS: Final[Mapping[str, Wrapper]] = _FILE.wrappers
NOT_DRAWN: Final[Mapping[str, str]] = {kind: why for why, kinds in _FILE.not_drawn.items() for kind in kinds}
"""What a type has that is not drawn, for the message that refuses it."""


class TextConfig(NamedTuple):
    """Config of a text model, the location of its fields, and the parts left out.

    ``data`` are its fields, ``paths`` the paths of those that are elsewhere in the file, ``inside`` the path of the
    config itself, ``wrapped`` whether it is part of another, ``what`` its name for messages, ``left_out`` defaults of
    the wrapper's class, and ``left`` the parts that are not imported.
    """

    data: Mapping[str, Any]
    paths: Mapping[str, str]
    left: tuple[str, ...] = ()
    inside: str = "$"
    wrapped: bool = False
    what: str = "text model"
    left_out: Mapping[str, Any] = {}  # what its class takes for sizes that a config inside another one leaves out
    notes: tuple[str, ...] = ()  # what is taken of two that differ

    def path(self, name: str) -> str:
        """Path of a field in the file."""
        return self.paths.get(name, f"{self.inside}.{name}")


def text_of(data: Mapping[str, Any], file: str) -> TextConfig:
    """Config of the text model: the file itself, or a part of it.

    Raises
    ------
    DocumentError
        With every field of a wrapper that is not understood, or does not fit to the config inside.

    Examples
    --------
    >>> found = text_of({"model_type": "llama4", "text_config": {"model_type": "llama4_text"}, "dtype": "x"}, "c.json")
    >>> found.data, found.path("dtype"), found.path("vocab_size")
    ({'model_type': 'llama4_text', 'dtype': 'x'}, '$.dtype', '$.text_config.vocab_size')
    """
    wrapper = WRAPPERS.get(data["model_type"]) if isinstance(data.get("model_type"), str) else None
    if wrapper is None:
        return TextConfig(data, {name: f"$.{name}" for name in data})
    left = tuple(part for part in wrapper.parts if data.get(part) is not None)
    if odd := [part for part in left if not isinstance(data[part], Mapping)]:
        issues = [Issue(f"$.{part}", f"found {shown(data[part])}, expected null, or a mapping") for part in odd]
        raise DocumentError(file, issues)
    if wrapper.flat and wrapper.inside not in data:
        outside = {*_FILE.words, *wrapper.words, *wrapper.parts}
        own = {name: value for name, value in data.items() if name not in outside} | {"model_type": wrapper.flat}
        return TextConfig(own, {name: f"$.{name}" for name in own}, left, wrapped=True)
    inner = data.get(wrapper.inside)
    if wrapper.thinker and isinstance(inner, Mapping):
        return _thinking(data, wrapper, inner, left, file)
    if issues := list(_issues(data, wrapper, inner)):
        raise DocumentError(file, issues)
    assert isinstance(inner, Mapping)
    where = f"$.{wrapper.inside}"
    inner = {name: value for name, value in inner.items() if not _is_of_wrapper(wrapper, name, value)}
    paths = {name: f"{where}.{name}" for name in inner}
    above = [name for name in _INHERITED if name in data and inner.get(name) is None]
    merged = {**inner, **{name: data[name] for name in above}}
    of_class, notes = _FILE.sizes_of_classes.get(inner["model_type"], {}), tuple[str, ...]()
    if _ties_differ(data, inner):
        merged["tie_word_embeddings"] = False
        notes = ("tie_word_embeddings false: of two that differ, true is the default of a class",)
    paths |= {name: f"$.{name}" for name in above}
    return TextConfig(merged, paths, left, where, True, wrapper.what, of_class, notes)


def _ties_differ(data: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    """Whether only one of two configs ties embeddings in a file of transformers 5, which writes defaults into both."""
    major = str(data.get("transformers_version")).partition(".")[0]
    ties = [part.get("tie_word_embeddings") for part in (data, inner)]
    return major.isdecimal() and int(major) >= 5 and True in ties and False in ties


def _alike(first: Any, other: Any) -> bool:
    """Whether two fields say the same; of types of two bytes, which are as wide as each other, that inside counts."""
    halves = ("bfloat16", "float16")
    return bool(first == other) or (first in halves and other in halves)


def _is_of_wrapper(wrapper: Wrapper, name: str, value: Any) -> bool:
    """Whether a field of the config inside says nothing of the text model."""
    return name in wrapper.drops or (name in wrapper.off and value is False)


def _thinking(
    data: Mapping[str, Any], wrapper: Wrapper, inner: Mapping[str, Any], left: tuple[str, ...], file: str
) -> TextConfig:
    """The text model of a wrapper that lies in another one, beside what speaks."""
    front = f"$.{wrapper.inside}"
    issues = [issue for issue in _issues(data, wrapper, inner) if not issue.where.startswith(front)]
    if inner.get("model_type", wrapper.thinker) != wrapper.thinker:
        message = f"found {shown(inner['model_type'])}, expected {wrapper.thinker}"
        issues.append(Issue(f"{front}.model_type", message))
    if issues:
        raise DocumentError(file, issues)
    above = {name: data[name] for name in (*_INHERITED, "transformers_version") if name in data and name not in inner}
    try:
        text = text_of({**above, **inner, "model_type": wrapper.thinker}, file)
    except DocumentError as error:
        raise DocumentError(file, [replace(issue, where=front + issue.where[1:]) for issue in error.issues]) from None
    paths = {name: path if name in above else front + path[1:] for name, path in text.paths.items()}
    return text._replace(paths=paths, left=(*left, *text.left), inside=front + text.inside[1:])


def _issues(data: Mapping[str, Any], wrapper: Wrapper, inner: Any) -> Iterator[Issue]:
    names, where = {*_INHERITED, *wrapper.parts, wrapper.inside}, f"$.{wrapper.inside}"
    for name, value in data.items():
        if name in COSMETIC or name in _FILE.words or name in wrapper.words or name in names:
            continue
        if name in EVERYWHERE:
            if EVERYWHERE[name].gives(value) is None:
                yield Issue(f"$.{name}", f"found {shown(value)}, expected {EVERYWHERE[name].expected}")
            continue
        message = "not understood, and could change a shape, a cost or a size"
        yield Issue(f"$.{name}", message, did_you_mean(name, sorted(names)))
    expected = f"expected the config of {' or '.join(wrapper.texts)}"
    if not isinstance(inner, Mapping):
        yield Issue(where, f"{'missing' if inner is None else f'found {shown(inner)}'}, {expected}")
        return
    kind = inner.get("model_type")
    if kind not in wrapper.texts:
        yield Issue(f"{where}.model_type", f"{'missing' if kind is None else f'found {shown(kind)}'}, {expected}")
    for name in _INHERITED:
        if name == "tie_word_embeddings" and _ties_differ(data, inner):
            continue
        if name in data and inner.get(name) is not None and not _alike(data[name], inner[name]):
            message = f"found {shown(inner[name])}, but {shown(data[name])} beside it ($.{name})"
            yield Issue(f"{where}.{name}", message)
