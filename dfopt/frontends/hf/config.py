"""The ``config.json`` of a Hugging Face model as a graph file: decoders, dense or of experts, and stacks of layers.

Data files say everything (``model_types/``): the fields that are understood, what each gives the decoder, or the values
under which it changes nothing; of each ``model_type`` what its architecture always has, and what its config class takes
for a field that a file leaves out; fields that change no shape, cost or size. Whatever is in none of them is refused by
its name: a field that is not understood could change a shape, a cost or a size. Types that hold the config of a text
model are wrappers, of which the text model alone is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from dfopt.documents.base import issues_of
from dfopt.documents.kinds import is_model_config
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import DocumentError, Issue, did_you_mean, shown
from dfopt.frontends.hf.families import FAMILIES
from dfopt.frontends.hf.fields import Family
from dfopt.frontends.hf.layers import layers_of
from dfopt.frontends.hf.quantization import quantization_of
from dfopt.frontends.hf.rows import COSMETIC, EVERYWHERE
from dfopt.frontends.hf.saved import as_published
from dfopt.frontends.hf.types import typed, words
from dfopt.frontends.hf.wrapped import FRONTS, NOT_DRAWN, WRAPPERS, TextConfig, Wrapper, text_of
from dfopt.workloads.decoder import DecoderParameters, as_stack
from dfopt.workloads.stack import Counts, StackParameters, counts

__all__ = ["read", "recipe"]

_SEQ, _BATCH = 8192, 32  # a choice, as in the zoo: at most as long as the positions of the model
_USUAL_BASE: Final = 10000
_OTHER_NAMES: Final = {"dtype": "torch_dtype"}


def recipe(
    data: Mapping[str, Any], path: str | os.PathLike[str], quant_config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Graph file data of a Hugging Face config: workload ``decoder``, or ``stack`` where layers differ.

    Parameters
    ----------
    data : mapping
        The parsed config.
    path : path
        Path of the file, for errors and for the name: that of its folder if it is called ``config.json``.
    quant_config : mapping, optional
        The parsed ``hf_quant_config.json`` of the same folder.

    Raises
    ------
    DocumentError
        With every field that is missing, unknown or has a value that is not understood.

    Examples
    --------
    >>> sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    >>> sizes |= {"intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 32, "torch_dtype": "bfloat16"}
    >>> sizes |= {"hidden_act": "silu"}
    >>> graph = recipe({"model_type": "llama", **sizes}, "tiny/config.json")
    >>> graph["name"], graph["parameters"]["kv_heads"], graph["parameters"]["head_dim"]
    ('tiny', 2, 16)
    >>> recipe({"model_type": "llama", "experts": 8, **sizes}, "tiny/config.json")
    Traceback (most recent call last):
    dfopt.errors.DocumentError: tiny/config.json: 1 problem
      $.experts: not understood, and could change a shape, a cost or a size (a decoder of type llama has none)
    """
    file = os.fspath(path)
    _check_type(data, file)
    text = as_published(text_of(data, file))
    family = FAMILIES[text.data["model_type"]]
    fields = _ConfigFields(text, family)
    fields.read()
    if fields.issues:
        raise DocumentError(file, fields.issues)
    workload, parameters = _built(fields, file)
    workload, parameters = _with_types(fields, workload, parameters, quant_config, file)
    return _document(fields, workload, parameters, data["model_type"], Path(file))


def _check_type(data: Mapping[str, Any], file: str) -> None:
    """Refuse types that are not read, and models that are no language models."""
    kind = data.get("model_type")
    families: dict[str, Family | Wrapper] = {**FAMILIES, **WRAPPERS}
    if not isinstance(kind, str) or kind not in families:
        message = "missing" if kind is None else f"found {shown(kind)}, which dfopt does not read yet"
        if isinstance(kind, str) and kind in NOT_DRAWN:
            message = f"found {shown(kind)}, which has {NOT_DRAWN[kind]}: not drawn"
        close = did_you_mean(kind, families) if isinstance(kind, str) else ""
        types = f"types that are read: {', '.join(sorted(name for name in families if not name.endswith('_text')))}"
        raise DocumentError(file, [Issue("$.model_type", message, f"{close} {types}".strip())])
    kinds, wrapped = data.get("architectures"), kind in WRAPPERS
    ends = ("ForCausalLM", "LMHeadModel", *(["ForConditionalGeneration"] if wrapped else []))
    ends += families[kind].classes
    if kinds is not None and not (isinstance(kinds, list) and all(str(name).endswith(ends) for name in kinds)):
        message = f"found {shown(kinds)}, expected a causal language model, such as [LlamaForCausalLM]"
        raise DocumentError(file, [Issue("$.architectures", message)])


class _ConfigFields:
    """The fields of a config: what they give, what the file leaves out, and what is wrong with it."""

    def __init__(self, text: TextConfig, family: Family) -> None:
        self.text, self.family, self.issues = text, family, list[Issue]()
        self.rows = family.fields
        self.given: dict[str, Any] = {**family.always}
        self.defaults: dict[str, Any] = {}  # of fields that the file leaves out
        self.origin: dict[str, str] = {}  # which field a parameter comes from
        self.data: dict[str, Any] = {}  # by the names that the tables have
        self.left_out: dict[str, Any] = {**text.left_out, **family.left_out}
        self.empty = set[str]()  # fields of which a file says null, where a class has a default
        self.predicted = 0  # modules that predict further tokens, as far as types leave them as they are

    def read(self) -> None:
        """Read every field, and then what is left out."""
        before = dict[str, str]()
        for written, value in self.text.data.items():
            name = {**_OTHER_NAMES, **self.family.names}.get(written, written)
            earlier = self.data.get(name)
            if value is None and earlier is not None:
                continue  # null says nothing beside another name of the field
            if earlier is not None and (type(earlier) is not type(value) or earlier != value):
                self.refuse(written, f"found {shown(value)}, but {before[name]} says {shown(earlier)}")
            self.data[name], before[name] = value, written
            self.empty.discard(name)
            self.read_field(name, written, value)
        for name, value in self.left_out.items():
            renamed = self.data.get("hidden_activation") is not None and name == "hidden_act"
            default = value({**self.defaults, **self.data}) if callable(value) else value
            if self.data.get(name) is not None or name in self.origin.values() or renamed:
                continue
            if default is not None or not callable(value):  # which gives none where it cannot be worked out
                self.defaults[name] = default
                taken = self.rows[name].gives(default) or {}
                self.given |= {parameter: each for parameter, each in taken.items() if parameter not in self.origin}
        for name, row in self.rows.items():
            optional = name in self.defaults or name in self.family.words
            if row.needed and not optional and (name not in self.data or name in self.empty):
                self.issues.append(
                    Issue(self.text.path(name), f"missing, expected {row.expected}", "it has no default")
                )

    def read_field(self, name: str, written: str, value: Any) -> None:
        """Read a field, which is known, or refuse it by its name."""
        family, row = self.family, self.rows.get(name, EVERYWHERE.get(name))
        if (name in COSMETIC and name not in self.rows) or name in family.words:
            return
        if row is None:
            message = "not understood, and could change a shape, a cost or a size"
            close = did_you_mean(name, [field for field in self.rows if field not in self.text.data])
            self.refuse(written, message, close or f"a decoder of type {self.text.data['model_type']} has none")
            return
        uses = self.text.data.get("use_sliding_window", family.left_out.get("use_sliding_window"))
        if name == "sliding_window" and uses is False:
            return
        if name == "quantization_config" and isinstance(value, Mapping):
            return  # types are found out when the layers are known
        parameters = row.gives(value)
        if parameters is not None:
            others = (each for each in parameters if each in self.origin and self.given[each] != parameters[each])
            if (parameter := next(others, None)) is not None:
                self.refuse(written, f"found {shown(value)}, but {self.origin[parameter]} gives another {parameter}")
            self.given |= parameters
            self.origin |= dict.fromkeys(parameters, name)
        elif value is None and name in self.left_out:  # for which a class has a default
            self.empty.add(name)
        else:  # null is what a class has a default for
            self.refuse(written, f"found {shown(value)}, expected {row.expected}")

    def refuse(self, written: str, message: str, remedy: str = "") -> None:
        self.issues.append(Issue(self.text.path(written), message, remedy))

    def where(self, parameter: str) -> str:
        """The path of the field that a parameter comes from."""
        by_default = (name for name in self.defaults if parameter in (self.rows[name].gives(self.defaults[name]) or {}))
        return self.text.path(self.origin.get(parameter) or next(by_default, parameter))


def _built(fields: _ConfigFields, file: str) -> tuple[str, dict[str, Any]]:
    """The workload of a config, and its parameters."""
    given, family = fields.given, fields.family
    if family.alike:
        seq = min(_SEQ, given["positions"], given.get("window") or _SEQ)  # layers of a decoder are alike
        return "decoder", {**given, "gated_mlp": True, "norm": "rmsnorm", "seq": seq, "microbatch": 1, "batch": _BATCH}
    try:
        for step in family.steps:
            given = {**given, **step(given)}
        built = (family.stack or layers_of)(given)
    except ValueError as error:  # sizes that do not fit together
        name, _, what = str(error).partition(": ")
        raise DocumentError(file, [Issue(fields.where(name), what)]) from None
    positions = built.pop("positions", given["positions"])
    return "stack", {**built, "positions": positions, "seq": min(_SEQ, positions), "microbatch": 1, "batch": _BATCH}


def _with_types(
    fields: _ConfigFields, workload: str, parameters: dict[str, Any], quant_config: Mapping[str, Any] | None, file: str
) -> tuple[str, dict[str, Any]]:
    """The workload with the types that its quantization is described by, here or in the file beside."""
    inside = fields.data.get("quantization_config")
    wide = fields.data.get("torch_dtype", fields.defaults.get("torch_dtype"))
    descriptions = list[tuple[str, str, Mapping[str, Any]]]()
    if isinstance(inside, Mapping):
        descriptions.append((file, fields.text.path("quantization_config"), inside))
    if quant_config is not None:
        described = quant_config.get("quantization")
        where = str(Path(file).with_name("hf_quant_config.json"))
        if not isinstance(described, Mapping) or set(quant_config) - {"quantization", "producer"}:
            raise DocumentError(where, [Issue("$.quantization", "found no description of types, expected a mapping")])
        descriptions.append((where, "$.quantization", {"quant_method": "modelopt", **described}))
    results, modules = list[tuple[str, dict[str, Any]]](), fields.family.modules
    if fields.text.wrapped:
        modules = modules.model_copy(update={"fronts": (*FRONTS, *modules.fronts)})
    for name, path, config in descriptions:
        quantized, issues = quantization_of(config, path)
        # a type of experts beside that of all weights, unless layers have their own
        if not issues and (held := fields.given.get("experts_in")) and quantized.scheme and not quantized.layers:
            experts = modules.layer + modules.experts[0].partition(".0.")[0]
            quantized = replace(quantized, layers={experts: quantized.scheme._replace(weights=held)})
        if not issues:
            built, typed_parameters, issues = typed(workload, parameters, quantized, wide, modules)
            results.append((built, typed_parameters))
        if issues:
            raise DocumentError(name, issues)
    if "experts_in" in fields.given and not results:
        message = "found a type of experts, but no quantization_config"
        raise DocumentError(file, [Issue(fields.where("experts_in"), message, "say how all else is held")])
    fields.predicted = _predicting(parameters) - _predicting(results[0][1] if results else parameters)
    if len(results) > 1 and results[0] != results[1]:
        message = "found other types than quantization_config of config.json says"
        raise DocumentError(descriptions[1][0], [Issue("$.quantization", message, "delete one of the two")])
    return results[0] if results else (workload, parameters)


def _counted(fields: _ConfigFields, workload: str, parameters: Mapping[str, Any], file: str) -> Counts:
    """How large a model is, whose sizes must fit together."""
    try:
        stack = StackParameters(**parameters) if workload == "stack" else as_stack(DecoderParameters(**parameters))
    except ValidationError as error:  # sizes that are whole numbers, but do not fit together
        wrong = issues_of(StackParameters if workload == "stack" else DecoderParameters, parameters, error)
        issues = [Issue(fields.where(issue.where.rpartition(".")[2]), issue.message, issue.remedy) for issue in wrong]
        raise DocumentError(file, issues) from None
    return counts(stack)


def _document(
    fields: _ConfigFields, workload: str, parameters: dict[str, Any], kind: str, path: Path
) -> dict[str, Any]:
    sizes = _counted(fields, workload, parameters, str(path))
    folder = Path(os.path.abspath(path)).parent.name  # of `config.json` alone it is the one that a user is in
    stem = folder if path.name == "config.json" and folder else path.stem
    types = words(parameters) or f", all in {fields.data.get('torch_dtype', fields.defaults.get('torch_dtype'))}"
    text = f" of its {fields.text.what}" if fields.text.wrapped else ""
    used = f", of which a token uses {sizes.active / 1e9:.4g} billion" if sizes.active < 0.9 * sizes.parameters else ""
    description = f"{kind} with {sizes.parameters / 1e9:.4g} billion parameters{text}{used}{types}"
    description += f", {sizes.bytes_per_token} B kept of a token"
    return {
        "schema": "dfopt/graph/3",
        "name": stem,
        "description": "; ".join([description, *_notes(fields, parameters)]),
        "source": f"{path.name} of a Hugging Face model",
        "workload": workload,
        "parameters": {**parameters, **_rotary(fields.text.data)},
    }


def _rotary(data: Mapping[str, Any]) -> dict[str, float]:
    """What no cost depends on: the base of rotary position, if it is not that of most, and its scaling in Llama 3.1."""
    rope: Any = data.get("rope_parameters") or data.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope) if isinstance(rope, Mapping) else {}
    base, factor = data.get("rope_theta", rope.get("rope_theta")), rope.get("factor")
    scaled = rope.get("rope_type") == "llama3" and isinstance(factor, int | float)
    rotary = {"rotary_base": base if base != _USUAL_BASE else None, "rotary_scaling": factor if scaled else None}
    return {name: float(value) for name, value in rotary.items() if isinstance(value, int | float) and value > 0}


def _predicting(parameters: Mapping[str, Any]) -> int:
    """Modules that predict further tokens."""
    return sum(section.get("repeat", 1) for section in parameters.get("sections", ()) if section.get("predicts"))


def _notes(fields: _ConfigFields, parameters: Mapping[str, Any]) -> Iterator[str]:
    """What the graph leaves out, and what the config does."""
    if fields.text.left:
        yield f"{' and '.join(fields.text.left)} left out: only the {fields.text.what} is drawn and counted"
    yield from fields.text.notes
    for modules, what in ((_predicting(parameters), "not counted"), (fields.predicted, "left out: of other types")):
        if modules:
            yield f"{modules} module{'s' * (modules > 1)} that predict{'s' * (modules == 1)} further tokens {what}"
    for name, part in fields.family.left.items():
        if value := fields.data.get(name) or fields.defaults.get(name):
            yield f"{part} left out ({name} {value})"
    if fields.defaults:
        yield f"the config leaves out {', '.join(_spelled(name, value) for name, value in fields.defaults.items())}"


def _spelled(name: str, value: Any) -> str:
    return f"{name} (as its class has it)" if isinstance(value, list) and value else f"{name} {str(value).lower()}"


def read(path: str | os.PathLike[str], data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Graph file data of a config file or of a model's folder.

    Parameters
    ----------
    path : path
        The file or folder.
    data : mapping, optional
        Parsed contents of the file, if they are known.

    Raises
    ------
    DocumentError
        If there is no config, or it is not understood.
    """
    file = Path(path)
    file = file / "config.json" if os.path.isdir(file) else file
    data = load_strict(file, unbounded=is_model_config) if data is None else data
    if not is_model_config(data):
        raise DocumentError(str(file), [Issue("$.model_type", "missing", "expected the config.json of a model")])
    quantized = file.with_name("hf_quant_config.json")
    return recipe(data, file, load_strict(quantized) if os.path.exists(quantized) else None)
