"""What a Hugging Face model says of its quantization: types in which weights are held and multiplied.

A ``quantization_config``, or ``hf_quant_config.json`` beside the config, is read as a scheme for the weights it
quantizes, a type of cached keys and values, and patterns of names that are left as they are, or have another scheme.
Which weights those are is found out in :mod:`dfopt.frontends.hf.types`. A field or value that is not in the tables here
is refused by its path.

Sources: ``FineGrainedFP8Config``, ``AwqConfig``, ``GPTQConfig`` and ``should_convert_module`` of transformers 5.23; the
``QuantizationArgs`` and ``ignore`` of compressed-tensors; ``QUANT_ALGOS`` of vLLM 0.16 (``modelopt.py``); the files of
the models. Scales of a whole tensor, of rows and of tokens are not counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeGuard

from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import Issue, did_you_mean, shown

__all__ = ["EXPERTS_ONLY", "TABLE", "Quantized", "Scheme", "quantization_of"]


class Scheme(NamedTuple):
    """Data types of weights, and of activations in products with them; None: unchanged."""

    weights: str
    operands: str | None = None


How = Literal["names", "globs", "exact"]
"""How patterns mean modules: from the start up to a dot or at the end, with ``*``, or as a whole or by ``re:``."""
EXPERTS_ONLY: Final = ("lm_head", "model.embed_tokens", "model.layers.*.mlp.router", "model.layers.*.self_attn")
"""What a description of mxfp4 leaves as it is: all but the experts."""


@dataclass(frozen=True)
class Quantized:
    """A quantization description: data types of weights, activations and KV cache.

    Attributes
    ----------
    scheme : Scheme, optional
        Data types of all weights without an entry in ``layers`` or ``kept``. None: those weights are not quantized.
    kv : str, optional
        Data type of cached keys and values. None: not quantized.
    kept : tuple of (str, str)
        Patterns of modules that are not quantized, each with its path in the description.
    how : str
        Syntax of the patterns.
    layers : mapping of str to Scheme
        Schemes of single modules, by name.
    where : str
        Path of the description in the document.
    """

    scheme: Scheme | None = None
    kv: str | None = None
    kept: tuple[tuple[str, str], ...] = ()
    how: How = "names"
    layers: Mapping[str, Scheme] = field(default_factory=dict)
    where: str = "$.quantization_config"


TABLE: Final = load_strict(Path(__file__).with_suffix(".yaml"))
"""What descriptions may say, what parts of a model are called, and which weights are not drawn."""
_ALGORITHMS: Final[Mapping[str, Scheme]] = {name: Scheme(*types) for name, types in TABLE["algorithms"].items()}
_OF_GROUPS: Final = {
    (name, int(group)): Scheme(*types)
    for name, groups in TABLE["algorithms by group_size"].items()
    for group, types in groups.items()
}
_CACHES: Final[Mapping[Any, str | None]] = {None: None, **TABLE["caches"]}
_BITS: Final[Mapping[tuple[Any, Any], str]] = {("float", 8): "FP8", ("float", 4): "NVFP4", ("int", 8): "INT8"}
_WORDS: Final = frozenset[str](TABLE["words"].split())


class _Reading:
    """One description, what is wrong with it, and which fields of it have been read."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.config, self.where, self.issues = config, where, list[Issue]()
        self.known = set(_WORDS) | {"quant_method"}

    def one_of(self, name: str, values: Sequence[Any], *, needed: bool = False) -> Any:
        """The value of a field, which must be one of some."""
        self.known.add(name)
        value = self.config.get(name)
        if name not in self.config:
            if needed:
                self.issues.append(Issue(f"{self.where}.{name}", "missing", "it has no default"))
        elif not any(type(value) is type(choice) and value == choice for choice in values):
            expected = " or ".join("null" if choice is None else str(choice) for choice in values)
            self.issues.append(Issue(f"{self.where}.{name}", f"found {shown(value)}, expected {expected}"))
        return value

    def patterns(self, *names: str) -> tuple[tuple[str, str], ...]:
        """The patterns of some fields, with their paths."""
        pairs = list[tuple[str, str]]()
        for name in names:
            self.known.add(name)
            value = self.config.get(name)
            for place, pattern in enumerate(value if isinstance(value, list) else [] if value is None else [value]):
                where = f"{self.where}.{name}[{place}]"
                if isinstance(pattern, str) and pattern:
                    pairs.append((pattern, where))
                else:
                    self.issues.append(Issue(where, f"found {shown(pattern)}, expected a name"))
        return tuple(pairs)

    def refuse(self, name: str, expected: str) -> None:
        self.known.add(name)
        self.issues.append(Issue(f"{self.where}.{name}", f"found {_brief(self.config.get(name))}, expected {expected}"))

    def unknown(self) -> Iterator[Issue]:
        for name in self.config:
            if name not in self.known:
                close = did_you_mean(str(name), sorted(self.known - _WORDS))
                yield Issue(f"{self.where}.{name}", "not understood, and could change a size", close)


def quantization_of(config: Mapping[str, Any], where: str) -> tuple[Quantized, list[Issue]]:
    """Quantization in a config, and the issues in its description.

    Parameters
    ----------
    config : mapping
        The value of ``quantization_config``, or of ``quantization`` in ``hf_quant_config.json``.
    where : str
        Its path.

    Examples
    --------
    >>> fp8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    >>> quantization_of(fp8, "$.quantization_config")[0].scheme
    Scheme(weights='fp8_128x128', operands='fp8_1x128')
    """
    reading = _Reading(config, where)
    method = config.get("quant_method")
    producer = config.get("producer")
    if method is None and isinstance(producer, Mapping) and producer.get("name") == "modelopt":
        method = "modelopt"
    readers = {
        "awq": _awq, "compressed-tensors": _compressed, "fp8": _fp8, "gptq": _gptq, "modelopt": _modelopt,
        "modelopt_fp4": _modelopt, "mxfp4": _mxfp4,
    }  # fmt: skip
    if not isinstance(method, str) or method not in readers:
        message = "missing" if method is None else f"found {shown(method)}"
        return Quantized(), [Issue(f"{where}.quant_method", f"{message}, expected {' or '.join(readers)}")]
    return readers[method](reading), [*reading.issues, *reading.unknown()]


def _fp8(reading: _Reading) -> Quantized:
    """Weights of fp8 in blocks or with one scale, and, where modelopt made experts narrower, those."""
    values = {
        name: reading.one_of(name, choices, needed=name != "scale_fmt")
        for name, choices in TABLE["fields of fp8"].items()
    }
    kept = reading.patterns("modules_to_not_convert")
    scheme = Scheme("fp8", "fp8")
    if values["weight_block_size"] is not None:
        scales = f"_{values['scale_fmt']}" if values["scale_fmt"] else ""
        scheme = Scheme(f"fp8_128x128{scales}", f"fp8_1x128{scales}")
    if "quantized_layers" not in reading.config:
        return Quantized(scheme, None, kept, where=reading.where)
    # what modelopt says of all else is that it is as before: of fp8
    reading.one_of("quant_algo", ("MIXED_PRECISION",), needed=True)
    reading.one_of("moe_quant_algo", (*_ALGORITHMS, None))
    reading.one_of("group_size", (16, None))
    reading.patterns("ignore")
    reading.known.add("config_groups")
    caches = _caches(reading)
    return Quantized(scheme, caches, kept, layers=_layers(reading), where=reading.where)


def _mxfp4(reading: _Reading) -> Quantized:
    """Experts in mxfp4, which are multiplied as wide as activations; the list must say that it is only them."""
    reading.known.add("modules_to_not_convert")
    kept = reading.config.get("modules_to_not_convert")
    if not isinstance(kept, list) or sorted(map(str, kept)) != [*EXPERTS_ONLY]:
        reading.refuse("modules_to_not_convert", f"all modules but the experts: {', '.join(EXPERTS_ONLY)}")
    patterns = tuple((pattern, f"{reading.where}.modules_to_not_convert") for pattern in EXPERTS_ONLY)
    return Quantized(Scheme("mxfp4"), None, patterns, where=reading.where)


def _awq(reading: _Reading) -> Quantized:
    reading.one_of("bits", (4,), needed=True)
    group = reading.one_of("group_size", (32, 64, 128), needed=True)
    zeros = reading.one_of("zero_point", (True, False), needed=True)
    return Quantized(_int4(group, zeros=zeros), None, reading.patterns("modules_to_not_convert"), where=reading.where)


def _gptq(reading: _Reading) -> Quantized:
    reading.one_of("bits", (4,), needed=True)
    group = reading.one_of("group_size", (32, 64, 128), needed=True)
    even = reading.one_of("sym", (True, False), needed=True)
    # its linear layers inside of blocks are quantized, and neither head nor routers
    return Quantized(
        _int4(group, zeros=even is False), None, reading.patterns("modules_in_block_to_leave"), where=reading.where
    )


def _int4(group: Any, *, zeros: Any) -> Scheme:
    return Scheme(f"int4_g{group}{'_zp' if zeros is True else ''}")


def _modelopt(reading: _Reading) -> Quantized:
    """An algorithm for all linear layers, or for each of some; patterns with ``*``."""
    algorithm = reading.one_of(
        "quant_algo", ("MIXED_PRECISION", *_ALGORITHMS, *TABLE["algorithms by group_size"]), needed=True
    )
    kept = reading.patterns("ignore", "exclude_modules")
    caches = _caches(reading)
    group = reading.config.get("group_size")
    reading.known.add("group_size")
    layers = dict[str, Scheme]()
    if algorithm == "MIXED_PRECISION":
        layers = _layers(reading)
        reading.known.add("config_groups")  # the same once more, by its schemes
        return Quantized(None, caches, kept, "globs", layers, reading.where)
    if "quantized_layers" in reading.config:
        reading.refuse("quantized_layers", "none beside an algorithm of all layers")
    scheme = _algorithm(algorithm, group)
    if scheme is None and not reading.issues:
        reading.refuse("group_size", f"that of {algorithm}")
    if "config_groups" in reading.config:
        grouped = _of_groups(reading)
        if grouped is not None and scheme is not None and grouped != scheme:
            reading.refuse("config_groups", f"what {algorithm} is: weights in {scheme.weights}")
    return Quantized(scheme, caches, kept, "globs", layers, reading.where)


def _algorithm(name: Any, group: Any) -> Scheme | None:
    if not isinstance(name, str):
        return None
    if (name, group) in _OF_GROUPS:
        return _OF_GROUPS[name, group]
    return _ALGORITHMS.get(name) if group in (None, TABLE["group_size"].get(name)) else None


def _layers(reading: _Reading) -> dict[str, Scheme]:
    """Schemes of modules by name."""
    reading.known.add("quantized_layers")
    entries, schemes = reading.config.get("quantized_layers"), dict[str, Scheme]()
    if not isinstance(entries, Mapping) or not entries:
        reading.refuse("quantized_layers", "an algorithm for each of some modules")
        return {}
    for name, entry in entries.items():
        scheme = _algorithm(entry.get("quant_algo"), entry.get("group_size")) if isinstance(entry, Mapping) else None
        if scheme is None or set(entry) - {"quant_algo", "group_size"}:
            expected, where = f"quant_algo of {', '.join(_ALGORITHMS)}, and its group_size", f"quantized_layers.{name}"
            reading.issues.append(Issue(f"{reading.where}.{where}", f"found {_brief(entry)}, expected {expected}"))
            return {}
        schemes[str(name)] = scheme
    return schemes


def _caches(reading: _Reading) -> str | None:
    """The type of cached keys and values."""
    types = set[str | None]()
    for name in ("kv_cache_scheme", "kv_cache_quant_algo"):
        reading.known.add(name)
        if name not in reading.config:
            continue
        value = reading.config[name]
        if _are_arguments(value):
            value = _BITS.get((value.get("type"), value.get("num_bits")), value)
        if not isinstance(value, str | None) or value not in _CACHES:
            reading.refuse(name, "null, FP8, NVFP4 or INT8, or their number of bits and type")
        else:
            types.add(_CACHES[value])
    if len(types) > 1:
        reading.refuse("kv_cache_scheme", "the same as kv_cache_quant_algo")
    return next(iter(types), None)


def _compressed(reading: _Reading) -> Quantized:
    """One group of linear layers, with the arguments of their weights and of what they take."""
    reading.known |= {"format", "sparsity_config", "transform_config"}
    for name in ("sparsity_config", "transform_config"):
        if reading.config.get(name) not in (None, {}):
            reading.refuse(name, "none: sparse or turned weights are not drawn")
    if "config_groups" not in reading.config:
        reading.refuse("config_groups", "one group")
    scheme = _of_groups(reading)
    return Quantized(scheme, _caches(reading), reading.patterns("ignore"), "exact", where=reading.where)


_STRATEGIES: Final = (None, "tensor", "channel", "token", "group", "tensor_group", "block")
_FLOATS: Final[Mapping[tuple[Any, Any], str]] = {
    (8, None): "fp8", (8, 32): "mxfp8", (8, 128): "fp8_1x128", (4, 16): "nvfp4", (4, 32): "mxfp4",
}  # fmt: skip
"""Types of floats by their bits, and by how many of them share a scale."""


def _are_arguments(arguments: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether arguments of a type are known, and what they say could be true."""
    return (
        isinstance(arguments, Mapping)
        and not set(arguments) - {*TABLE["arguments"].split()}
        and arguments.get("dynamic") in (None, True, False, "local")
        and all(isinstance(arguments.get(name), int | None) for name in ("num_bits", "group_size"))
        and isinstance(arguments.get("type"), str | None)
        and arguments.get("symmetric") in (None, True, False)
        and arguments.get("strategy") in _STRATEGIES
    )


def _of_groups(reading: _Reading) -> Scheme | None:
    """The scheme of the only group."""
    reading.known.add("config_groups")
    groups = reading.config.get("config_groups")
    group = next(iter(groups.values())) if isinstance(groups, Mapping) and len(groups) == 1 else None
    if not isinstance(group, Mapping):
        reading.refuse("config_groups", "one group, which is of all linear layers")
        return None
    where = f"{reading.where}.config_groups.{next(iter(groups or ()))}"
    for name, value in group.items():
        if name not in ("weights", "input_activations", "output_activations", "targets", "format"):
            reading.issues.append(Issue(f"{where}.{name}", "not understood, and could change a size"))
        elif (name == "targets" and value != ["Linear"]) or (name == "output_activations" and value is not None):
            expected = "null" if name == "output_activations" else "[Linear]: other weights would differ among layers"
            reading.issues.append(Issue(f"{where}.{name}", f"found {_brief(value)}, expected {expected}"))
    weights, operands = _type(group.get("weights")), _type(group.get("input_activations"), of_weights=False)
    for name, kind in (("weights", weights), ("input_activations", operands)):
        if kind is None:
            expected = "bits, type and groups of fp8, int8, int4, nvfp4, mxfp4 or mxfp8"
            reading.issues.append(Issue(f"{where}.{name}", f"found {_brief(group.get(name))}, expected {expected}"))
    return Scheme(weights, operands or None) if weights and operands is not None else None


def _type(arguments: Any, *, of_weights: bool = True) -> str | None:
    """The type that some arguments mean; of activations "" if they stay as they are; none if not understood."""
    if arguments is None and not of_weights:
        return ""
    if not _are_arguments(arguments):
        return None
    bits, of, group = arguments.get("num_bits"), arguments.get("type"), arguments.get("group_size")
    blocks = arguments.get("block_structure") if arguments.get("strategy") == "block" else None
    zeros = "_zp" if arguments.get("symmetric") is False else ""
    if of == "float" and bits == 8 and arguments.get("strategy") == "block":
        return "fp8_128x128" if blocks in ([128, 128], "128x128") and of_weights else None
    if of == "float":
        return _FLOATS.get((bits, group))
    if of == "int" and bits == 8 and group in (None, -1):
        return "int8"
    if of == "int" and bits == 4 and group in (32, 64, 128) and of_weights:
        return f"int4_g{group}{zeros}"
    return None


def _brief(value: Any) -> str:
    """A value in a line, at most as long as is read at a glance."""
    if not isinstance(value, (Mapping, list)):
        return shown(value)
    text = json.dumps(value, default=str)
    return text if len(text) <= 100 else f"{text[:97]}..."
