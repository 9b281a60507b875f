"""What a solve is asked beside graph, system and assumptions: once, for API, command line, studies and results."""

from __future__ import annotations

import math
from textwrap import fill
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.axes import AXES, MODULES, keys
from dfopt.documents.base import Part, issues_of, problem
from dfopt.documents.descriptions import fields_of
from dfopt.documents.mapping import Sharding
from dfopt.documents.modules import ModuleScheme
from dfopt.documents.names import in_documents, word_of
from dfopt.documents.on_axes import OnAxes
from dfopt.documents.placement import Item
from dfopt.errors import PlanError, did_you_mean
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
    "attention_dp": "", "parallelism": "", "rank_order": "", "modules": "scheme of", "place": "memory of",
    "offload": "", "pin_sharding": "sharding of", "pin_partition": "partition of",
}  # fmt: skip
"""Fields that restrict the space, and what the proof calls them where it is not their name."""

FREE_ZERO: Final = 0, 1, 2, 3
"""Levels of ZeRO that are tried in training where nobody says which."""

MetricName = Literal["step_time"]


def _rank_order(order: str) -> str:
    """An order of axes with those that it leaves out at its end."""
    named = order.split("-")
    if unknown := [name for name in named if name not in AXES]:
        raise problem(f"found {unknown[0]!r}, expected axes such as {'-'.join(AXES)}", did_you_mean(unknown[0], AXES))
    if len({*named}) < len(named):
        raise problem(f"found {order!r}, expected each axis once", f"such as {'-'.join(AXES)}")
    return "-".join((*named, *(name for name in AXES if name not in named)))


RankOrder = Annotated[str, AfterValidator(_rank_order)]


class Limit(Part):
    """A metric that must not be exceeded.

    Attributes
    ----------
    metric : e.g. step_time
        Metric that the limit is about. The only metric is the step time in seconds.
    at_most : s, e.g. 0.05
        Largest value of the metric that an answer may have.
    """

    metric: MetricName
    at_most: float = Field(gt=0)


class Objective(Part):
    """What to minimize, and metrics that must stay within limits.

    Attributes
    ----------
    metric : e.g. step_time
        Metric that dfopt makes smallest. The only metric is the step time: the seconds that one global batch takes.
    limits : e.g. [{metric: step_time, at_most: 0.05}]
        Limits that an answer must keep. A mapping that breaks one is no answer.
    """

    metric: MetricName = "step_time"
    limits: tuple[Limit, ...] = Field(default=(), max_length=16)

    @property
    def ceiling(self) -> float:
        """Largest value of the objective that its limits allow; infinite without a limit on it."""
        return min((limit.at_most for limit in self.limits if limit.metric == self.metric), default=math.inf)


class Request(OnAxes):
    """What the user asks of a search; None leaves a choice free.

    Attributes
    ----------
    schedule : e.g. 1f1b
        Order of microbatches in a training pipeline. ``1f1b``: one forward and one backward pass in turn.
        ``interleaved``: the same with several chunks of layers per stage. ``gpipe``: all forward passes first. None:
        dfopt tries 1f1b and interleaved, or follows the assumption ``schedule``.
    interleave : chunks, e.g. 2
        Number of chunks of layers that each pipeline stage holds (virtual stages). None: dfopt tries all that fit.
    first_layers : layers, e.g. 7
        Number of layers in the first pipeline stage, next to kernels that run once such as the embedding. None: dfopt
        chooses.
    last_layers : layers, e.g. 6
        Number of layers in the last pipeline stage, next to kernels that run once such as the logits. None: dfopt
        chooses.
    two_batch_overlap : e.g. true
        Whether plans take two half-batches at a time, so that one communicates while the other computes. True: only
        such plans. False: no such plans. None: dfopt tries both.
    zero : e.g. [0, 1]
        Levels of ZeRO that dfopt tries in training. ``0``: every data-parallel replica stores everything. ``1``:
        replicas shard the optimizer state. ``2``: also gradients. ``3``: also weights. None: all levels.
    zero_replicas : groups, e.g. [1, 4]
        Numbers of groups of replicas that dfopt tries; each group shards its data within itself (HSDP). 1 is a single
        group. ``all``: every number that the network allows. None: 1.
    recomputed : layers, e.g. 3
        Number of layers of a stage that use activation recomputation, where the graph has layers of both kinds. None:
        dfopt tries all numbers.
    sequence_parallelism : e.g. force
        Whether tensor-parallel chips may split elementwise kernels along the tokens. ``none``: never. ``allow``: where
        it is faster. ``force``: wherever possible, as Megatron-LM's --sequence-parallel does. None: as the assumptions
        say.
    tensor_overlap : e.g. any
        Overlap of tensor-parallel collectives with the matrix products next to them. ``none``: no overlap. ``ring``:
        tile by tile. ``pipe``: after waiting for the first tile. ``waves``: wave by wave of the output tiles of a
        fused kernel. ``any``: the fastest of none, ring and pipe. None: as the assumptions say.
    gradient_overlap : e.g. backward
        Overlap of the gradient reduction with the backward pass. ``none``: the reduction follows the step.
        ``backward``: the replicas add up each layer's gradients while earlier layers compute. ``any``: the faster of
        the two. None: as the assumptions say.
    parameter_overlap : e.g. forward
        Overlap of the all-gather of updated weights that replicas shard (ZeRO). ``none``: it follows the step.
        ``forward``: it runs during the next forward pass. ``any``: the faster of the two. None: as the assumptions say.
    point_to_point_overlap : e.g. interleaved
        Overlap of transfers between pipeline stages with compute. ``none``: stages wait. ``interleaved``: stages with
        several chunks of layers compute meanwhile. ``any``: the faster of the two. None: as the assumptions say.
    p_max : partitions, e.g. 4
        Largest number of on-chip partitions of a stage. Under the assumption ``empty_partitions: forbid`` it is the
        exact number. None: dfopt chooses.
    formulation : e.g. columns
        Formulation of the fusion problem on one chip. ``columns``: a path through blocks of kernels. ``assignment``: a
        MILP with the matrices of the DFModel paper. ``auto``: ``columns``, then ``assignment`` if a gap remains that a
        MILP of its size may close.
    gap : e.g. 1%
        Relative gap to the proven bound at which the search may stop. 0 asks for a proof of optimality.
    time_limit : e.g. 60 s
        Time for the whole search. When it ends, dfopt returns the best mapping so far with its gap.
    solver : e.g. highs
        Solver of the MILPs: highs, or another one through PuLP as pulp:NAME, such as pulp:CBC.
    seed : no unit, e.g. 0
        Seed of the random numbers of the solver.
    top : mappings, e.g. 3
        Number of best mappings that the answer keeps, which differ as ``distinct`` says.
    distinct : e.g. sharding
        Difference between the best mappings that the answer keeps. ``plan``: they differ in plan, microbatch size or
        recomputation. ``sharding``: they may also differ in the sharding of one plan. None: ``plan``.
    heat : e.g. aware
        Treatment of heat on a stack of dies. ``ignore``: dfopt reports temperatures and throttles the fastest mapping.
        ``aware``: it chooses partitions, clocks and pauses again so that the stack keeps its limits.
    sensitivity : e.g. true
        Whether dfopt also reports the speedup from 10 % more of each resource.
    objective : e.g. {metric: step_time}
        Metric that dfopt minimizes, and limits that an answer must keep.
    ep : chips, e.g. 8
        Degree of expert parallelism (EP). It is short for a module-wise parallel group (mp) of this size with
        ``experts: outer``. 1 means no such group. None: dfopt chooses.
    cp : chips, e.g. 4
        Degree of context parallelism (CP). It is short for a module-wise parallel group (mp) of this size with ``mixer:
        context``. 1 means no such group. None: dfopt chooses.
    attention_dp : chips, e.g. 8
        Degree of data parallelism of attention. It is short for a module-wise parallel group (mp) of this size with
        ``mixer: n``. 1 means no such group. None: dfopt chooses.
    modules : e.g. {mixer: n, experts: outer}
        Schemes by which modules share their work over a module-wise parallel group (mp), where you fix them. Schemes
        are ``n`` (sequences or tokens), ``outer`` (heads or experts), ``context`` (tokens of every sequence), ``m``
        (features) and ``none``. Modules are ``stream``, ``mixer``, ``dense``, ``experts`` and ``ends``.
    parallelism : e.g. tp_pp_dp
        Menu of parallelism strategies. ``tp_pp_dp``: tensor, pipeline and data parallelism only. ``expanded``: also a
        module-wise parallel group whose mixers and dense networks split alike. ``per_module``: every module has a
        scheme of its own. None: per_module.
    rank_order : e.g. tp-mp-pp-dp
        Order in which the axes take neighboring chips, as Megatron-LM numbers ranks. An axis that you leave out comes
        last. None: dfopt tries all ways to place axes on dims.
    place : e.g. {experts: DDR}
        Memory in which kinds of data lie, on chips with several memories. The kinds are ``weights``, ``experts``
        (weights of routed experts), ``caches``, ``tables``, ``activations``, ``gradients`` and ``optimizer``. None:
        dfopt chooses in serving, and uses the fastest memory in training.
    offload : e.g. [optimizer, activations]
        Kinds of training data that dfopt tries to place in slower memories of the chips. The kinds are ``weights``,
        ``experts`` (weights of routed experts), ``caches``, ``tables``, ``activations``, ``gradients`` and
        ``optimizer``; ``any`` stands for all that may lie there. None: only the kinds that ``place`` names.
    pin_sharding : e.g. {FFN0: m}
        Sharding of kernels that you fix, by kernel name. ``outer``: heads or other independent matrices. ``m``: output
        features. ``k``: the contraction, followed by an all-reduce. ``k>n``: the contraction, followed by a
        reduce-scatter along the tokens. ``n``: tokens. ``none``: every chip computes all of it. ``even``: the workload
        itself spreads it. All other kernels stay free.
    pin_partition : no unit, e.g. {FFN0: 2}
        On-chip partition of kernels that you fix, by kernel name. All other kernels stay free.
    """

    schedule: Literal["1f1b", "interleaved", "gpipe"] | None = None
    interleave: int | None = Field(default=None, ge=1)
    first_layers: int | None = Field(default=None, ge=0)
    last_layers: int | None = Field(default=None, ge=0)
    two_batch_overlap: bool | None = None
    zero: tuple[Literal[0, 1, 2, 3], ...] | None = Field(default=None, min_length=1)
    zero_replicas: tuple[Annotated[int, Field(ge=1)], ...] | Literal["all"] | None = None
    recomputed: int | None = Field(default=None, ge=1)
    sequence_parallelism: Literal["none", "allow", "force"] | None = None
    tensor_overlap: Literal["none", "ring", "pipe", "waves", "any"] | None = None
    gradient_overlap: Literal["none", "backward", "any"] | None = None
    parameter_overlap: Literal["none", "forward", "any"] | None = None
    point_to_point_overlap: Literal["none", "interleaved", "any"] | None = None
    p_max: int | None = Field(default=None, ge=1)
    formulation: Literal["auto", "assignment", "columns"] = "auto"
    gap: Ratio = Field(default=0.0, ge=0.0, le=1.0)
    time_limit: Seconds = Field(default=60.0, ge=0.0)
    solver: str = "highs"
    seed: int = Field(default=0, ge=0)
    top: int = Field(default=1, ge=1)
    distinct: Literal["plan", "sharding"] | None = None
    heat: Literal["ignore", "aware"] = "ignore"
    sensitivity: bool = False
    objective: Objective = Objective()
    ep: int | None = Field(default=None, ge=1)
    cp: int | None = Field(default=None, ge=1)
    attention_dp: int | None = Field(default=None, ge=1)
    modules: dict[Literal["stream", "mixer", "dense", "experts", "ends"], ModuleScheme] = Field(default_factory=dict)
    parallelism: Literal["tp_pp_dp", "expanded", "per_module"] | None = None
    rank_order: RankOrder | None = None
    place: dict[Item, str] | None = None
    offload: tuple[Item, ...] | Literal["any"] | None = Field(default=None, min_length=1)
    pin_sharding: dict[str, Sharding] = Field(default_factory=dict)
    pin_partition: dict[str, int] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _by_words(cls, data: Any) -> Any:
        return in_documents(data) if isinstance(data, dict) else data

    @field_validator("zero", "zero_replicas", mode="before")
    @classmethod
    def _one_or_several(cls, asked: Any, info: ValidationInfo) -> Any:
        if asked == "all" and info.field_name == "zero":
            return FREE_ZERO
        return (asked,) if isinstance(asked, int) and not isinstance(asked, bool) else asked

    @classmethod
    def of(cls, **asked: Any) -> Self:
        """Build a request from keyword arguments; `PlanError` lists all unknown names and invalid values.

        Examples
        --------
        >>> Request.of(tp=8, top=0)
        Traceback (most recent call last):
        dfopt.errors.PlanError: top: found 0, expected a number of 1 or more
        """
        try:
            return cls(**asked)
        except ValidationError as error:
            issues = issues_of(cls, in_documents(asked), error)
            raise PlanError("; ".join(str(issue).removeprefix("$.") for issue in issues)) from None

    def assuming(self, assumptions: Assumptions) -> Assumptions:
        """Assumptions with the fields that the request overrides.

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

    def stated(self) -> dict[str, Any]:
        """Fields that differ from a default request, as in a file."""
        plain = Request().model_dump(mode="json")
        return {name: value for name, value in self.model_dump(mode="json").items() if value != plain.get(name)}

    def asked(self) -> dict[str, Any]:
        """Given fields, as keyword arguments of :meth:`of`.

        Examples
        --------
        >>> Request(tp=8, gap=0.01).asked()
        {'gap': 0.01, 'tp': 8}
        """
        names = (*type(self).model_fields, *keys())
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}

    def holding(self) -> dict[str, Any]:
        """Fields that decide where data lies on the chips, as keyword arguments of :meth:`of`."""
        names = "ep", "cp", "attention_dp", "modules", "parallelism", "rank_order", "place", "offload", "time_limit"
        return {**self.on_axes, **{name: getattr(self, name) for name in names}}

    @property
    def fixed(self) -> tuple[str, ...]:
        """All requested restrictions of the search space, in words.

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
        """What distinguishes the best mappings if several are requested: plan, or also sharding."""
        return self.distinct if self.distinct is not None and self.top > 1 else "plan"

    @property
    def several(self) -> bool:
        """Whether one plan may contribute several of the best mappings."""
        return self.distinct_in != "plan"

    @property
    def pinned(self) -> tuple[str, ...]:
        """Fields that fix mappings of kernels, in the words of `fixed`."""
        of_kernels: dict[str, Any] = {"p_max": None, "pin_sharding": {}, "pin_partition": {}}
        return tuple(word for word in self.fixed if word not in self.model_copy(update=of_kernels).fixed)

    @property
    def shared_out(self) -> tuple[dict[str, Any], dict[str, ModuleScheme]]:
        """Requested axes by document key, and requested module schemes; ``ep`` and its like set both.

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
        if self.parallelism == "tp_pp_dp" and (schemes or on_axes.setdefault(MODULES, 1) != 1):
            raise PlanError(f"parallelism tp_pp_dp: found {MODULES} or schemes of modules beside it; drop one")
        return on_axes, schemes

    @classmethod
    def listed(cls, indent: str = "") -> str:
        """All fields with default and meaning, one per line, for help texts."""
        lines = [
            fill(
                f"* ``{word_of(field.name)}`` ({', '.join(filter(None, (field.default, field.unit)))}): {field.text}",
                120 - len(indent),
                subsequent_indent="  ",
            )
            for field in fields_of(cls)
        ]
        return "\n".join(lines).replace("\n", f"\n{indent}")

    @classmethod
    def keywords(cls) -> dict[str, Any]:
        """Keywords with defaults of a function that takes these fields as ``**asked``."""
        fields = {name: field.get_default(call_default_factory=True) for name, field in cls.model_fields.items()}
        return {word_of(name): default for name, default in (dict.fromkeys(keys()) | fields).items()}
