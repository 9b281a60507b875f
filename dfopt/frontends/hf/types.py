"""Which weights of a model a description of its quantization means, and the types of the graph that follow.

A description says what is quantized, and by patterns of names what is not. All weights of the model are gone through by
their names (:class:`dfopt.frontends.hf.fields.WeightNames`), layer by layer, and belong to attention, to dense MLPs, to
experts or to experts that every token uses. What belongs together must be of one type in all layers; otherwise, and
where a pattern means no weight at all, the file is refused by the pattern's path. Head, embedding, norms, the few
weights that decide about experts, and what is not drawn (towers for images, layers that predict further tokens) are
known by their names: the first two stay as wide as activations, the few count with attention.

A graph has types for weights, and for those of experts. Dense MLPs of the experts' type are one expert that every token
chooses; experts that every token uses, but of attention's type, are an MLP of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from dfopt.documents.dtypes import FORMATS
from dfopt.errors import Issue
from dfopt.frontends.hf.fields import WeightNames
from dfopt.frontends.hf.quantization import TABLE, Quantized, Scheme
from dfopt.workloads.decoder import DecoderParameters, as_stack

__all__ = ["typed", "words"]

_WIDE: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_NUMBER: Final = re.compile(r"(?:^|\.)layers\.(\d+)(?=\.)")
_NOT_DRAWN: Final = re.compile("|".join(TABLE["not drawn"]))
_SPECIAL: Final = re.compile(r"[*?\[]")
PARTS: Final[Mapping[str, str]] = TABLE["parts"]


class _Layer(NamedTuple):
    """A layer: its mixer, and which other parts it has."""

    mixer: Mapping[str, Any]
    parts: tuple[str, ...]


def _order(parameters: Mapping[str, Any]) -> Iterator[_Layer]:
    """The layers of a model in their order, of predictors behind them none."""
    if "sections" not in parameters:
        yield from [_Layer({}, ("mixer", "experts" if parameters.get("experts") else "dense"))] * parameters["layers"]
        return
    layers = {}
    for name, layer in parameters["layers"].items():
        forward = layer.get("feed_forward") or {}
        parts = (
            *(["mixer"] if layer.get("mixer") else []),
            *{"mlp": ["dense"], "moe": ["experts"]}.get(forward.get("kind", ""), []),
            *(["shared"] if forward.get("shared") else []),
        )
        layers[name] = _Layer(layer.get("mixer") or {}, parts)
    for section in parameters["sections"]:
        if not section.get("predicts"):
            yield from [layers[name] for name in section["layers"]] * section.get("repeat", 1)


def _is_there(name: str, mixer: Mapping[str, Any]) -> bool:
    """Whether a mixer has a weight that only some of its kind have."""
    last, sparse = name.rpartition(".")[2], mixer.get("sparse")
    if ".indexer" in name:
        return sparse is not None and not sparse.get("shared")
    if mixer.get("kind") == "mla" and last in ("q_proj", "q_a_proj", "q_b_proj"):
        return (last == "q_proj") == (mixer.get("query_rank") is None)
    return not (last == "v_proj" and mixer.get("values") == "keys")


class _Patterns:
    """The patterns of a description, and which of them have meant something."""

    def __init__(self, quantized: Quantized, fronts: tuple[str, ...]) -> None:
        self.quantized, self.used = quantized, set[str]()
        own = ((name, f"{quantized.where}.quantized_layers.{name}") for name in quantized.layers)
        patterns = [*quantized.kept, *own]
        plain = [pattern.removeprefix("re:").replace("\\", "") for pattern, _ in patterns]
        begun = {max((front for front in fronts if name.startswith(front)), key=len, default=None) for name in plain}
        self.fronts = [front for front in fronts if front in begun] or [fronts[-1]]
        self.everywhere, self.of_layer = list[tuple[str, str]](), dict[int, list[tuple[str, str]]]()
        for pattern, where in patterns:
            number = _NUMBER.search(pattern if pattern.startswith("re:") is False else "")
            place = self.everywhere if number is None else self.of_layer.setdefault(int(number[1]), [])
            place.append((pattern, where))

    def scheme(self, names: Iterable[str], number: int) -> tuple[Scheme | None, str]:
        """What is done with a weight, which has some names, and where that is said."""
        layers = self.quantized.layers
        matches = [
            (pattern, where)
            for pattern, where in (*self.everywhere, *self.of_layer.get(number, ()))
            for name in names
            if _means(pattern, name, self.quantized.how if pattern not in layers else "names")
        ]
        self.used.update(pattern for pattern, _ in matches)
        if own := [(layers[pattern], where) for pattern, where in matches if pattern in layers]:
            return own[0]
        return (None, matches[0][1]) if matches else (self.quantized.scheme, "")

    def without_predictors(self, parameters: Mapping[str, Any], layers: int, modules: WeightNames) -> Mapping[str, Any]:
        """Without modules that predict further tokens if their weights are left as they are, and others are not."""
        few = tuple(f".{name}" for name in modules.few)
        kept = any(
            (_behind(pattern, layers) and not _is_no_weight(pattern) and not pattern.endswith(few))
            or re.match(r"(re:)?(\.?\*)?mtp", pattern)
            for pattern, _ in self.quantized.kept
        )
        if not kept or "sections" not in parameters:
            return parameters
        return {**parameters, "sections": [part for part in parameters["sections"] if not part.get("predicts")]}

    def unused(self, layers: int) -> Iterator[Issue]:
        """Patterns that mean no weight of the model, nor anything that is not drawn."""
        for pattern, where in (*self.everywhere, *(pair for some in self.of_layer.values() for pair in some)):
            if pattern not in self.used and not _is_undrawn(pattern, layers):
                expected = "expected weights of attention, MLPs or experts, a router, a norm, an embedding or the head"
                yield Issue(where, f"found {pattern!r}, {expected}", "what it means is not known")


def _means(pattern: str, name: str, how: str) -> bool:
    """Whether a pattern means a weight, or all of a module that it is in."""
    try:
        if how == "globs":
            start = pattern.removesuffix("*")
            if not _SPECIAL.search(start):
                return name.startswith(start if start != pattern else f"{pattern}.") or name == pattern
            return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
        if how == "exact":
            return re.match(pattern[3:], name) is not None if pattern.startswith("re:") else name == pattern
        if "*" in pattern:
            plain = re.escape(pattern).replace(r"\*", "[^.]*")
            return re.match(rf"{plain}(?=\.|$)", name) is not None
        return f".{pattern}." in f".{name}."
    except re.error:
        return False  # and is told to mean nothing


def _behind(pattern: str, layers: int) -> bool:
    """Whether a pattern means something of layers behind those of the model, which predict further tokens."""
    number = re.search(r"(?:^|\.)layers\.(\d+)(?=\.|\*?$)", pattern)
    return number is not None and int(number[1]) >= layers


def _is_undrawn(pattern: str, layers: int) -> bool:
    """Whether a pattern means what is no weight of a layer that is drawn."""
    return _behind(pattern, layers) or _is_no_weight(pattern)


def _is_no_weight(pattern: str) -> bool:
    plain = pattern.removeprefix("re:").replace("\\", "").lstrip("^").removeprefix(".*").removeprefix("*")
    plain = re.sub(r"(\.?\*+|\.\*|\.|\$)+$", "", plain).lstrip(".")
    return _NOT_DRAWN.fullmatch(plain) is not None


def typed(
    workload: str, parameters: Mapping[str, Any], quantized: Quantized, wide: object, modules: WeightNames
) -> tuple[str, dict[str, Any], list[Issue]]:
    """Graph parameters of a model with the data types of its quantization.

    Parameters
    ----------
    workload, parameters
        The graph so far, a ``decoder`` or a ``stack``.
    quantized : Quantized
        The description.
    wide : object
        Data type of everything that is not quantized, as of ``torch_dtype``.
    modules : WeightNames
        Names of the weights of this type of model.

    Returns
    -------
    tuple
        Workload and parameters, and problems of the description.
    """
    if wide not in _WIDE:
        return workload, {**parameters}, []  # of which the field itself says what is wrong
    patterns, total = _Patterns(quantized, modules.fronts), 0
    schemes = dict[str, dict[Scheme | None, tuple[str, str]]]()
    for number, layer in enumerate(_order(parameters)):
        total += 1
        before = [front + modules.layer.replace("*", str(number)) for front in patterns.fronts]
        for name in modules.few:
            patterns.scheme([front + name for front in before], number)
        for part in layer.parts:
            own = modules.mixers.get(layer.mixer.get("kind", "")) if part == "mixer" else None
            for name in own or getattr(modules, part):
                if part == "mixer" and not _is_there(name, layer.mixer):
                    continue
                names = [front + name for front in before]
                scheme, where = patterns.scheme(names, number)
                schemes.setdefault(part, {}).setdefault(scheme, (names[-1], where))
    parameters = patterns.without_predictors(parameters, total, modules)
    issues = [*patterns.unused(total), *_differing(schemes, quantized)]
    if issues:
        return workload, {**parameters}, issues
    by_part = {part: next(iter(of)) for part, of in schemes.items()}
    return _with_types(workload, parameters, by_part, quantized, _WIDE[str(wide)])


def _differing(schemes: Mapping[str, Mapping[Scheme | None, tuple[str, str]]], quantized: Quantized) -> Iterator[Issue]:
    """Weights that belong together, of more than one type."""
    for part, of in schemes.items():
        if len(of) > 1:
            (first, (name, where)), (other, (another, elsewhere)) = [*of.items()][:2]
            words = f"{PARTS[part]} of two types, {_called(first)} ({name}) and {_called(other)} ({another})"
            remedy = "a graph has one type for all layers"
            yield Issue(elsewhere or where or quantized.where, f"found {words}, expected one", remedy)


def _called(scheme: Scheme | None) -> str:
    return "as wide as all else" if scheme is None else scheme.weights


def _with_types(
    workload: str, parameters: Mapping[str, Any], by_part: Mapping[str, Scheme | None], quantized: Quantized, left: str
) -> tuple[str, dict[str, Any], list[Issue]]:
    """Put types into the parameters; what they are is known of every part that the model has."""

    def held(scheme: Scheme | None) -> str:
        return left if scheme is None else scheme.weights

    attention = by_part.get("mixer", next(iter(by_part.values())))
    experts = by_part.get("experts", by_part.get("dense", attention))
    differing = [part for part in ("dense", "shared") if part in by_part and by_part[part] != attention]
    for part in differing:
        if by_part[part] != experts:
            others = f"experts in {held(experts)} and attention in {held(attention)}"
            message = f"found {PARTS[part]} in {held(by_part[part])}, {others}, expected the type of one of them"
            return workload, {**parameters}, [Issue(quantized.where, message)]
    schemes = [scheme for scheme in by_part.values() if scheme is not None]
    taken = {scheme.operands for scheme in schemes}
    if None in taken and len(taken) > 1:
        words = " and ".join(sorted(f"{scheme.weights} by {scheme.operands or left}" for scheme in set(schemes)))
        return workload, {**parameters}, [Issue(quantized.where, f"found products of {words}", "expected one of them")]
    # weights that are wider are multiplied as they are held: a product takes the narrowest type that holds both
    operands = min(taken, key=lambda operand: FORMATS[operand].bytes) if taken and None not in taken else None  # type: ignore[index]
    types = {"weights": held(attention), "activations": left, "ends": left}
    types |= {"experts": held(experts)} if held(experts) != held(attention) else {}
    types |= {"operands": operands} if operands else {}
    types |= {"kv": quantized.kv} if quantized.kv else {}
    given = {name: value for name, value in parameters.items() if name != "word_bytes"}
    if "dense" in differing and workload == "decoder":
        workload, given = "stack", as_stack(DecoderParameters(**given)).model_dump(exclude_defaults=True, mode="json")
    if workload == "stack":
        given["layers"] = {name: _typed_layer(layer, by_part, attention) for name, layer in given["layers"].items()}
    return workload, {**given, "dtypes": types}, []


def _has_shared_mlp(layer: Mapping[str, Any]) -> bool:
    """Whether experts that every token uses are no more of the others, but an MLP of their own."""
    forward = layer.get("feed_forward") or {}
    alone = forward.get("latent") or forward.get("shared_norms") or forward.get("shared", 0) % forward.get("ffn", 1)
    return bool(forward.get("shared") and alone)


def _typed_layer(
    layer: Mapping[str, Any], by_part: Mapping[str, Scheme | None], attention: Scheme | None
) -> dict[str, Any]:
    """A layer whose dense MLP, or whose experts that every token uses, are of the class that has their type."""
    forward = layer.get("feed_forward")
    if not forward:
        return {**layer}
    own: dict[str, Any] = {}
    if forward["kind"] == "mlp" and by_part["dense"] != attention:
        own = {"typed": "experts"}
    if forward.get("shared") and by_part["shared"] != by_part["experts"]:
        own = {"shared_apart": True}
    elif _has_shared_mlp(layer) and by_part["shared"] != attention:
        own = {"shared_typed": "experts"}
    return {**layer, "feed_forward": {**forward, **own}} if own else {**layer}


def words(parameters: Mapping[str, Any]) -> str:
    """Text on the data types of a graph, for its description.

    Examples
    --------
    >>> types = {"weights": "bf16", "experts": "nvfp4", "activations": "bf16", "ends": "bf16", "kv": "fp8"}
    >>> words({"dtypes": types, "experts": 8})
    ', experts in nvfp4, all else in bf16, caches in fp8'
    """
    dtypes = parameters.get("dtypes")
    if not dtypes:
        return ""
    layers = parameters.get("layers", {}).values() if "sections" in parameters else ()
    forwards = [layer.get("feed_forward") or {} for layer in layers]
    dense = any(forward.get("typed") == "experts" for forward in forwards)
    routed = parameters.get("experts") or any(forward.get("kind") == "moe" for forward in forwards)
    those = " and ".join([*(["experts"] if routed else []), *(["dense MLPs"] if dense else [])])
    caches = f", caches in {dtypes['kv']}" if "kv" in dtypes else ""
    if "experts" in dtypes and dtypes["weights"] == dtypes["ends"]:
        return f", {those} in {dtypes['experts']}, all else in {dtypes['weights']}{caches}"
    experts = f", {those} in {dtypes['experts']}" if "experts" in dtypes else ""
    rest = f", with the routers but without head and embedding ({dtypes['ends']})"
    return f", weights in {dtypes['weights']}{experts}{rest}{caches}"
