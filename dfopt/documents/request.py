"""What a solve is asked beside graph, system and assumptions: once, for API, command line, studies and results."""

from __future__ import annotations

import inspect
import math
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.axes import AXES, MODULES, keys
from dfopt.documents.base import Part, issues_of
from dfopt.documents.descriptions import fields_of
from dfopt.documents.mapping import Sharding
from dfopt.documents.modules import ModuleScheme
from dfopt.documents.on_axes import OnAxes
from dfopt.documents.placement import Item
from dfopt.errors import PlanError
from dfopt.units import Ratio, Seconds

_BY_MODULE: Final[dict[str, tuple[str, ModuleScheme]]] = {
    "ep": ("experts", "outer"), "cp": ("mixer", "context"), "attention_dp": ("mixer", "n"),
}  # fmt: skip
"""What the field calls schemes of modules, by the degree that says so."""

_HIDING: Final = "tensor_overlap", "operand_traffic", "collective_work"

_RESTRICTS: Final = {
    "schedule": "", "interleave": "", "first_layers": "", "last_layers": "", "two_batch_overlap": "", "zero": "",
    "zero_replicas": "", "recomputed": "recomputed layers", "sequence_parallelism": "", "tensor_overlap": "",
    "gradient_overlap": "", "parameter_overlap": "", "point_to_point_overlap": "", "p_max": "", "ep": "", "cp": "",
    "attention_dp": "", "modules": "scheme of", "place": "memory of", "offload": "", "pin_sharding": "sharding of",
    "pin_partition": "partition of",
}  # fmt: skip
"""Fields that restrict the space, and what the proof calls them where it is not their name."""

FREE_ZERO: Final = 0, 1, 2, 3
"""Levels of ZeRO that are tried in training where nobody says which."""

MetricName = Literal["step_time"]


class Limit(Part):
    """A metric that must not be exceeded."""

    metric: MetricName
    at_most: float = Field(gt=0, description="in the unit of the metric: seconds")


class Objective(Part):
    """What is made least, and what must not be exceeded meanwhile."""

    metric: MetricName = Field(default="step_time", description="step_time: seconds of one global batch")
    limits: tuple[Limit, ...] = Field(default=(), max_length=16, description="mappings that break one are not answers")

    @property
    def ceiling(self) -> float:
        """The value that its limits allow; infinite where none is on the same metric."""
        return min((limit.at_most for limit in self.limits if limit.metric == self.metric), default=math.inf)


class Request(OnAxes):
    """What was asked for; none means free."""

    schedule: Literal["1f1b", "interleaved", "gpipe"] | None = Field(
        default=None,
        description="order of microbatches in a pipeline that trains, instead of what the assumptions say: 1f1b with"
        " every stage in one chunk of layers, interleaved in several, gpipe; none = 1f1b and interleaved are tried",
    )
    interleave: int | None = Field(default=None, ge=1, description="chunks of layers that a pipeline stage holds")
    first_layers: int | None = Field(
        default=None, ge=0, description="layers of the first stage of a pipeline, beside kernels that run once"
    )
    last_layers: int | None = Field(default=None, ge=0, description="of the last stage")
    two_batch_overlap: bool | None = Field(
        default=None,
        description="true: only plans that take two microbatches at a time, of which one communicates while the other"
        " computes; false: none of these",
    )
    zero: tuple[Literal[0, 1, 2, 3], ...] | None = Field(
        default=None,
        min_length=1,
        description="levels of ZeRO that are tried, in training, where there are copies of the batch: 0 every copy"
        " holds all, 1 they share out the optimizer's state, 2 gradients too, 3 weights too; none = all",
    )
    zero_replicas: tuple[Annotated[int, Field(ge=1)], ...] | Literal["all"] | None = Field(
        default=None,
        description="groups of copies that are tried, each of which shares out by itself and holds what the others do"
        " (HSDP): 1 is all copies together, all every number that the dims can be cut into; none = 1",
    )
    recomputed: int | None = Field(
        default=None,
        ge=1,
        description="layers of a stage that are computed again, of a graph that draws both kinds; none = all are tried",
    )
    sequence_parallelism: Literal["none", "allow", "force"] | None = Field(
        default=None, description="instead of what the assumptions say of it"
    )
    tensor_overlap: Literal["none", "ring", "pipe", "any"] | None = Field(
        default=None,
        description="of collectives between chips that share a product, instead of what the assumptions say; any ="
        " ring, which is never slower than pipe, and that than none; where exchanges are hidden as Calculon counts,"
        " all of them are tried where that does not hold (and its pipe waits twice)",
    )
    gradient_overlap: Literal["none", "backward", "any"] | None = Field(
        default=None,
        description="whether copies add gradients up behind the backward pass, instead of what the assumptions say; any"
        " = backward, which is never slower than none, or of each mapping the faster one where they count as Calculon",
    )
    parameter_overlap: Literal["none", "forward", "any"] | None = Field(
        default=None,
        description="whether weights that copies share out are brought together behind the first forward pass, instead"
        " of what the assumptions say; any = forward, which is never slower than none",
    )
    point_to_point_overlap: Literal["none", "interleaved", "any"] | None = Field(
        default=None,
        description="whether stages of several chunks work while they send to each other, instead of what the"
        " assumptions say; any = interleaved, which is never slower than none",
    )
    p_max: int | None = Field(
        default=None, ge=1, description="on-chip partitions at most (exactly, under empty_partitions: forbid)"
    )
    formulation: Literal["auto", "assignment", "columns"] = Field(
        default="auto",
        description="of the intra-chip problem: columns (blocks of kernels: a path through the lattice of down-sets, or"
        " blocks generated on demand), assignment (the paper's matrices), auto: columns, and the matrices where those"
        " leave a gap that a MILP of that size may close",
    )
    gap: Ratio = Field(
        default=0.0, ge=0.0, le=1.0, description="relative gap at which a solve may stop, such as 1%; 0 proves"
    )
    time_limit: Seconds = Field(default=60.0, ge=0.0, description="for everything; the best mapping found is returned")
    solver: str = Field(default="highs", description="of the MILPs: highs, or pulp:NAME, such as pulp:CBC")
    seed: int = Field(default=0, ge=0, description="of the solver")
    top: int = Field(default=1, ge=1, description="best mappings kept, which are distinct")
    distinct: Literal["plan", "sharding"] | None = Field(
        default=None,
        description="what tells the best mappings apart: plan (its microbatches and recomputation too), or sharding,"
        " of one plan too; none = plan",
    )
    heat: Literal["ignore", "aware"] = Field(
        default="ignore",
        description="ignore: the judge says how hot the best mapping is, and throttles it; aware: partitions, operating"
        " points and pauses are chosen anew so that a stack of dies keeps its limits",
    )
    sensitivity: bool = Field(default=False, description="what 10 % more of each resource would bring")
    objective: Objective = Objective()
    ep: int | None = Field(
        default=None, ge=1, description="expert parallelism: mp of this degree with experts: outer; 1 = no second axis"
    )
    cp: int | None = Field(
        default=None, ge=1, description="context parallelism: mp of this degree with mixer: context; 1 = no mp"
    )
    attention_dp: int | None = Field(
        default=None, ge=1, description="data parallelism of attention: mp of this degree with mixer: n; 1 = no mp"
    )
    modules: dict[Literal["stream", "mixer", "dense", "experts", "ends"], ModuleScheme] = Field(
        default_factory=dict, description="module -> scheme on the second axis that is fixed, such as mixer: n"
    )
    place: dict[Item, str] | None = Field(
        default=None, description="item -> memory of the chips that it lies in, such as experts: DDR"
    )
    offload: tuple[Item, ...] | Literal["any"] | None = Field(
        default=None,
        min_length=1,
        description="of a graph that trains, what is tried in slower memories of the chips, such as optimizer,"
        " activations; any = all that may lie there; none = only what place says",
    )
    pin_sharding: dict[str, Sharding] = Field(default_factory=dict, description="kernel -> scheme that is fixed")
    pin_partition: dict[str, int] = Field(default_factory=dict, description="kernel -> partition that is fixed")

    @field_validator("zero", "zero_replicas", mode="before")
    @classmethod
    def _one_or_several(cls, asked: Any, info: ValidationInfo) -> Any:
        if asked == "all" and info.field_name == "zero":
            return FREE_ZERO
        return (asked,) if isinstance(asked, int) and not isinstance(asked, bool) else asked

    @classmethod
    def of(cls, **asked: Any) -> Self:
        """A request from keyword arguments, or a `PlanError` with every unknown name and every value that cannot be.

        Examples
        --------
        >>> Request.of(tp=8, top=0)
        Traceback (most recent call last):
        dfopt.errors.PlanError: top: found 0, expected a number of 1 or more
        """
        try:
            return cls(**asked)
        except ValidationError as error:
            issues = issues_of(cls, asked, error)
            raise PlanError("; ".join(str(issue).removeprefix("$.") for issue in issues)) from None

    def assuming(self, assumptions: Assumptions) -> Assumptions:
        """Assumptions with what is asked for instead of what they say.

        Examples
        --------
        >>> Request(sequence_parallelism="force").assuming(Assumptions()).sequence_parallelism
        'force'
        >>> Request(tensor_overlap="any", gradient_overlap="any").assuming(Assumptions()).tensor_overlap
        'ring'
        """
        order = None if self.schedule is None else "gpipe" if self.schedule == "gpipe" else "one_f_one_b"
        counted = assumptions.gradient_overlap in ("calculon", "calculon_or_none")
        asked = {"sequence_parallelism": self.sequence_parallelism, "schedule": order}
        if (gradients := self.gradient_overlap) is not None:
            best = "calculon_or_none" if counted else "backward"
            asked["gradient_overlap"] = best if gradients == "any" else gradients
        changes: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        if changes.get("gradient_overlap") == "none":
            changes["gradient_overlap"] = None
        if (weights := self.parameter_overlap) is not None:
            changes["parameter_overlap"] = None if weights == "none" else "forward"
        if (sent := self.point_to_point_overlap) is not None:
            changes["point_to_point_overlap"] = "exposed" if sent == "none" else "interleaved"
        if (tensors := self.tensor_overlap) is not None:
            tensors = "ring" if tensors == "any" else tensors
            hidden = assumptions.hiding("pipe_twice" if tensors == "pipe" and counted else tensors)
            changes |= {name: getattr(hidden, name) for name in _HIDING}
        return assumptions.changed(
            {name: value for name, value in changes.items() if value != getattr(assumptions, name)}
        )

    def said(self) -> dict[str, Any]:
        """What differs from a request for nothing in particular, as in a file."""
        plain = Request().model_dump(mode="json")
        return {name: value for name, value in self.model_dump(mode="json").items() if value != plain.get(name)}

    def asked(self) -> dict[str, Any]:
        """The fields that were given, as keyword arguments of :meth:`of`.

        Examples
        --------
        >>> Request(tp=8, gap=0.01).asked()
        {'gap': 0.01, 'tp': 8}
        """
        names = (*type(self).model_fields, *keys())
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}

    def holding(self) -> dict[str, Any]:
        """What of it decides what lies where on the chips, as keyword arguments of :meth:`of`."""
        names = ("ep", "cp", "attention_dp", "modules", "place", "offload", "time_limit")
        return {**self.on_axes, **{name: getattr(self, name) for name in names}}

    @property
    def fixed(self) -> tuple[str, ...]:
        """Every restriction of the space that was asked for, in words.

        Examples
        --------
        >>> Request(dp=1, tp=8, zero=(1,), pin_sharding={"FFN0": "k"}, gap=0.01).fixed
        ('tp 8', 'dp 1', 'zero 1', 'sharding of FFN0 k')
        """
        words = []
        axes = self.on_axes
        given = {key: axes[key] for key in keys() if key in axes}  # whatever the order in which they were asked for
        for name, value in {**given, **{name: getattr(self, name) for name in _RESTRICTS}}.items():
            if value is None or value == {} or value == "any" or (name == "zero" and value == FREE_ZERO):
                continue
            if isinstance(value, dict):
                words += [f"{_RESTRICTS[name]} {key} {what}" for key, what in value.items()]
                continue
            listed = "/".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()
            words.append(f"{_RESTRICTS.get(name) or name} {listed or 'none'}")
        return (*words, *(f"{limit.metric} at most {limit.at_most:g} s" for limit in self.objective.limits))

    @property
    def distinct_in(self) -> Literal["plan", "sharding"]:
        """What tells the best mappings apart, where there may be several."""
        return self.distinct if self.distinct is not None and self.top > 1 else "plan"

    @property
    def pinned(self) -> tuple[str, ...]:
        """What of it says how kernels are mapped, in the words of `fixed`."""
        of_kernels: dict[str, Any] = {"p_max": None, "pin_sharding": {}, "pin_partition": {}}
        return tuple(word for word in self.fixed if word not in self.model_copy(update=of_kernels).fixed)

    @property
    def shared_out(self) -> tuple[dict[str, Any], dict[str, ModuleScheme]]:
        """What is asked about axes, by the keys of documents, and about modules; ``ep`` and its like are both.

        Examples
        --------
        >>> Request(tp=2, ep=8).shared_out
        ({'tp': 2, 'mp': 8}, {'experts': 'outer'})
        """
        on_axes, schemes = self.on_axes, {str(name): scheme for name, scheme in self.modules.items()}
        for name, (module, scheme) in _BY_MODULE.items():
            degree = getattr(self, name)
            if degree is None:
                continue
            if on_axes.setdefault(MODULES, degree) != degree:
                message = f"{name} {degree} and {MODULES} {on_axes[MODULES]}: modules share one second axis"
                raise PlanError(f"{message}; give one degree")
            if degree > 1 and schemes.setdefault(module, scheme) != scheme:
                raise PlanError(f"{name} {degree} is {module}: {scheme}, found {module}: {schemes[module]}; drop one")
        return on_axes, schemes

    @classmethod
    def listed(cls, indent: str = "") -> str:
        """Every field with its default and what it means, a line each, for help texts."""
        says = "degree of {0.title}, network dims that carry it"
        lines = [f"* ``{axis.name}``, ``{axis.dims_key}`` (None): {says.format(axis)}" for axis in AXES.values()]
        lines += [f"* ``{field.name}`` ({field.default}): {field.text}" for field in fields_of(cls)]
        return f"\n{indent}".join(lines)

    @classmethod
    def keywords(cls) -> dict[str, tuple[Any, Any]]:
        """What the signature of a function that takes the fields as ``**asked`` says of them: no type, a default."""
        fields = {name: field.get_default(call_default_factory=True) for name, field in cls.model_fields.items()}
        return {name: (inspect.Parameter.empty, default) for name, default in (dict.fromkeys(keys()) | fields).items()}
