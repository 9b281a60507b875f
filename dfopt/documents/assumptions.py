"""What the model takes for granted, as a document with named profiles.

Two results are comparable only if their assumptions are equal, so every result carries them.
Each field exists because two sources differ (DFModel's paper, its program's versions, physics);
``default`` takes the most physical choice for each and no loss that has to be measured, so it is called ``ideal`` too;
``dfmodel`` takes the choice behind the paper's Table VI and Figs. 10-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from dfopt.documents.base import Document
from dfopt.documents.dfmodel_profile import DFMODEL
from dfopt.errors import NotInZoo, close_matches
from dfopt.units import Bandwidth, Bytes, Ratio, Seconds

Overlap = Literal["auto", "perfect", "none", "compute_memory"]
TensorOverlap = Literal["ring", "pipe", "pipe_twice", "waves"]

CHANGED = " (changed)"
"""Behind the name of a profile of which fields were changed."""


class Assumptions(Document):
    """All modelling conventions that change a number.

    Attributes
    ----------
    profile : e.g. default
        Name of this set of assumptions, which results and reports show. Changed fields add the word "(changed)".
    execution : e.g. library
        Kernels that may share an on-chip partition. ``dataflow``: all kernels. ``library``: those that a GPU library
        fuses, such as attention. ``kernel_by_kernel``: none. ``chip``: all or none, as the chip's own field says.
        ``auto``: as ``chip``, but a library's kernels on chips that run kernel by kernel.
    overlap : e.g. compute_memory
        Overlap of compute, memory and network time within a partition. ``perfect``: the longest of the three counts.
        ``none``: their sum counts. ``compute_memory``: network time is added to the longer of the other two. ``auto``:
        ``perfect`` on dataflow chips, otherwise ``compute_memory``.
    compute_model : e.g. fixed
        Model of the compute rate of a kernel. ``fixed``: one share of the peak rate. ``efficiency``: a share from the
        chip's table, by the size of the shard. ``cycle``: cycles of a systolic array of lanes x stages.
    compute_utilization : e.g. 90 %
        Share of the peak rate that kernels sustain under ``compute_model: fixed``. None: the chip's own share.
    sharding_objective : e.g. joint
        Way to search sharding and fusion. ``joint``: together, with one proof. ``seconds``: first the sharding with the
        least compute and communication time, then its best fusion. ``bytes``: the same, but all collectives count alike
        and ties prefer few layout conversions, then split kernels.
    sharding_rules : e.g. exact
        Layouts that a sharding needs, and whether chips may share a normalization. ``exact``: those that the
        mathematics requires. ``dfmodel``: the rules of DFModel's program.
    sequence_parallelism : e.g. allow
        Whether tensor-parallel chips may split elementwise kernels along the tokens. ``none``: never. ``allow``: where
        it is faster; products then reduce-scatter their sums, and one all-gather serves all readers. ``force``:
        wherever possible, as Megatron-LM's --sequence-parallel does.
    masked_scores : e.g. fused
        Attention scores that a mask hides. ``fused``: dataflow chips and fused attention kernels of a library skip
        them, all others compute, move and store them. ``skipped``: every chip skips them.
    collective_model : e.g. exact
        Model of the time of a collective. ``exact``: alpha-beta time of the best algorithm for the wiring.
        ``two_stage``: the same algorithms with acknowledgements (two latencies per round) and packet headers.
        ``dfmodel``: the table of DFModel's program.
    all_reduce_passes : passes, e.g. 2
        Number of times that an all-reduce moves its tensor under ``collective_model: dfmodel``. ``1``: once. ``2``:
        twice, for reduce-scatter and all-gather.
    all_to_all_messages : e.g. crossing
        Messages of an all-to-all that load the middle of the network under ``collective_model: dfmodel``. ``crossing``:
        those that cross it in one direction (c^2/4 of c chips). ``all``: all of them (c^2), as in DFModel's FFT runs of
        Fig. 6.
    all_to_all_dims : e.g. together
        Use of several network dims by one all-to-all, except under ``collective_model: dfmodel``. ``together``: all
        dims carry messages at the same time, and the slowest decides. ``in_turn``: one dim after the other.
    stage_time : e.g. sum
        Time of a pipeline stage from its compute, network and point-to-point times. ``sum``: they add up. ``max``: the
        longest counts.
    weights_from_dram : e.g. true
        Whether a partition reads its weights from DRAM in every evaluation.
    layer_boundary : e.g. dram
        Path of the tensors between layers and of the inputs and outputs of the graph. ``dram``: they pass through DRAM.
        ``free``: they cost nothing.
    empty_partitions : e.g. allow
        Whether on-chip partitions may stay empty. ``allow``: at most p_max partitions have kernels. ``forbid``: exactly
        p_max have kernels, as in DFModel's Table VI.
    forward_backward : e.g. separate
        Whether forward and backward kernels may share an on-chip partition. ``separate``: never, and the forward pass
        comes first. ``halves``: the forward pass has the first half of p_max partitions. ``shared``: without
        restriction.
    fanout : e.g. shared
        Storage of a tensor that several kernels read. ``shared``: it is stored once. ``per_consumer``: each reader has
        its own copy.
    skew_buffers : e.g. depth
        Number of tiles in the buffer between two kernels of a partition. ``depth``: their difference in level plus one.
        ``double``: always two.
    weight_tiling : e.g. reread
        Traffic of a kernel whose weights do not fit on the chip and that runs alone, in f parts. ``reread``: its inputs
        are read f times. ``reread_all``: its outputs are written f times too. ``free``: nothing is repeated.
        ``forbid``: no such kernel is allowed.
    token_blocks : e.g. allow
        Whether partitions of a dataflow chip may take their tokens in blocks and read their weights again for each,
        instead of holding them on the chip. ``allow``: where it is faster, or the weights do not fit; but not under
        ``compute_model: cycle`` or without ``weights_from_dram``. ``none``: never. ``auto``: ``allow``
        where no layer has more than 32 forward kernels, and layers repeat or nothing trains; else blocks are too many.
    gradients : e.g. exact
        Cost of weight gradients in training. ``exact``: accumulators take SRAM and DRAM traffic, and replicas add them
        up at the end of the step. ``dfmodel``: they are free, and their all-reduce is spread over the microbatches.
    gradient_traffic : e.g. accumulated
        DRAM traffic of a weight gradient in each evaluation, under ``gradients: exact``. ``accumulated``: it is read,
        added to and written back in the type of activations. ``held``: the same in the type of ``main_gradients``.
        ``written``: it is only written, as Calculon counts. None: ``accumulated``.
    gradient_bandwidth : e.g. 1 GB/s
        Rate at which replicas exchange gradients in each pass under ``gradients: dfmodel``, whatever the network.
        DFModel's DLRM runs imply 1 GB/s. None: the rate follows from the network.
    gradient_overlap : e.g. backward
        Overlap of the gradient reduction with the backward pass, under ``gradients: exact``. ``backward``: the replicas
        add up the gradients of each layer while earlier layers still compute. ``calculon``: the exposed time as
        Calculon counts it. ``calculon_or_none``: the shorter of ``calculon`` and no overlap. None: the reduction
        follows the step.
    parameter_overlap : e.g. forward
        Overlap of the all-gather of updated weights, with ``gradient_overlap: backward`` and an optimizer state that
        replicas shard (ZeRO). ``forward``: layer by layer during the next forward pass, as Megatron-LM's
        --overlap-param-gather does. None: the all-gather follows the step.
    backward_gathers : e.g. layer
        Repetition of all-gathers in the backward pass under sequence parallelism. ``layer``: once per layer and tensor.
        ``kept``: never, since gathered tensors stay stored. ``kept_calculon``: as ``kept``, but once per layer where
        recomputed kernels read the tensor. None: every partition that reads a tensor gathers it.
    tensor_overlap : e.g. ring
        Overlap of tensor-parallel collectives with the matrix products next to them. ``ring``: tile by tile while the
        product computes. ``pipe``: the same after waiting for the first tile. ``pipe_twice``: waiting for it twice, as
        Calculon counts. ``waves``: a fused kernel sends each wave of output tiles while the next one computes. None: no
        overlap.
    collective_work : e.g. every
        Work of a chip for a collective in addition to network time. ``every``: it adds the reduced data, and reads and
        writes the tensor. ``first``: the same, but recomputed communication costs network time only. ``first_adds``: as
        ``first``, with the additions only. None: no work.
    operand_traffic : e.g. own
        DRAM traffic of tensors between kernels that run one by one. ``own``: each kernel writes all that it makes and
        reads all that its sharding needs. ``own_tiled``: the same, but backward products move one tile of gathered or
        reduced tensors. None: the stored size, written and read.
    optimizer_step : e.g. adam
        Time of the optimizer step in training, under ``gradients: exact``. ``adam``: 11 FLOP per parameter, and DRAM
        traffic of state, gradient and weight. ``adam_once``: the state moves once and nothing else, as Calculon counts.
        None: no time.
    kernel_overhead : e.g. 5 us
        Time to start a partition, such as a kernel launch. It is a part of the communication time of the partition and
        overlaps as that does. None: 0.
    step_overhead : e.g. 1 ms
        Time that every step takes in addition, without any overlap. None: 0.
    network_dims : e.g. parts
        Use of a network dim by several kinds of parallelism. ``parts``: they may share it, each on groups of its chips.
        ``whole``: a dim carries only one kind, as in DFModel. ``placed``: as ``parts``, and dfopt also searches the
        placement of the groups on rings and lines.
    module_schemes : e.g. all
        Schemes of modules on the second axis that dfopt tries where the question names neither its degree nor a scheme.
        ``all``: every scheme, in up to four times as many plans. None: the common schemes, which are seldom slower
        than others, such as embedding and logits by features.
    schedule : e.g. one_f_one_b
        Order of microbatches in a training pipeline. ``one_f_one_b``: 1F1B, which stores the activations of at most pp
        microbatches and allows interleaving. ``gpipe``: all forward passes first, which stores the activations of all
        microbatches.
    bubble : e.g. one_f_one_b
        Time in which a pipeline fills and drains. ``one_f_one_b``: pp - 1 times the slowest stage, divided by the
        interleaving. ``interleaved``: DFModel's share (pp - 1) / (layers - 1). ``stages``: the times of the individual
        stages, as the schedule has them.
    point_to_point : e.g. per_microbatch
        Transfers that pipeline stages make. ``per_microbatch``: every chunk of layers sends for every microbatch.
        ``per_neighbour``: the same, but the last stage sends nothing on and the first nothing back. ``per_step``: one
        hop per layer and step, as in DFModel.
    point_to_point_parts : e.g. scattered
        Transfers of a tensor that tensor-parallel chips all store. ``scattered``: each chip may send a part and the
        next stage gathers, where that is faster (Megatron-LM's scatter-gather). ``calculon``: each sends a part, with
        the collectives that Calculon counts. None: each sends the whole tensor.
    point_to_point_overlap : e.g. interleaved
        Overlap of transfers between pipeline stages with compute. ``hidden``: stages compute while they send.
        ``exposed``: they wait. ``interleaved``: stages with several chunks of layers compute meanwhile, as Megatron-LM
        does. None: ``hidden`` under ``overlap: perfect``, otherwise ``exposed``.
    optimizer_bytes_per_parameter : e.g. 12 B
        DRAM that the optimizer state takes per parameter in training. Adam with fp32 main weights takes 12 B.
    training_memory : e.g. calculon
        Memory that a chip needs for the layer at work in training, under ``gradients: exact``. ``calculon``: all that
        its backward pass reads or makes, gradients of this layer in 4 B each, and those of other layers sharded like
        the optimizer state. None: tensors that wait between partitions.
    offload : e.g. calculon
        Transfers of training data that lies in a slower memory. ``calculon``: both directions run at once, and the
        optimizer state moves with every microbatch. None: both directions share one rate, and the optimizer state moves
        once per step.
    layers_exchanged : layers, e.g. 2
        Layers whose sharded weights (ZeRO-3) or unreduced gradients (ZeRO-2 and 3) a chip stores in full at a time.
        ``1``: only the layer at work. ``2``: also the layer that is prefetched. None: the weights of one layer, and no
        gradients.
    memory_reserve : e.g. 10 %
        Share of each memory that a model cannot use, because of the framework, communication buffers and fragmentation.
        Write 0 to use all memory. None: the share of the chip's file.
    exchange_buffers : e.g. 2 GB
        DRAM of each chip for buffers of the gradient reduction, in addition to the gradients, under ``gradients:
        exact``. DeepSpeed needs ``reduce_bucket_size`` elements, and PyTorch DDP the size of the gradients. None: 0, as
        in Megatron-LM.
    tile_rows : rows, e.g. 64
        Rows of one tile along the streamed axis. None: dfopt chooses; it uses one row unless times depend on it, as
        under ``compute_model: cycle``.
    """

    SCHEMA: ClassVar[str] = "dfopt/assumptions/3"
    EARLIER: ClassVar[tuple[str, ...]] = ("dfopt/assumptions/1", "dfopt/assumptions/2")

    profile: str = "default"
    execution: Literal["auto", "chip", "dataflow", "library", "kernel_by_kernel"] = "auto"
    overlap: Overlap = "auto"
    compute_model: Literal["fixed", "cycle", "efficiency"] = "fixed"
    compute_utilization: Ratio | None = Field(default=None, gt=0, le=1)
    sharding_objective: Literal["joint", "seconds", "bytes"] = "joint"
    sharding_rules: Literal["exact", "dfmodel"] = "exact"
    sequence_parallelism: Literal["none", "allow", "force"] = "allow"
    masked_scores: Literal["fused", "skipped"] = "fused"
    collective_model: Literal["exact", "two_stage", "dfmodel"] = "exact"
    all_reduce_passes: Literal[1, 2] = 2
    all_to_all_messages: Literal["crossing", "all"] = "crossing"
    all_to_all_dims: Literal["together", "in_turn"] = "together"
    stage_time: Literal["sum", "max"] = "sum"
    weights_from_dram: bool = True
    layer_boundary: Literal["dram", "free"] = "dram"
    empty_partitions: Literal["allow", "forbid"] = "allow"
    forward_backward: Literal["separate", "halves", "shared"] = "separate"
    fanout: Literal["shared", "per_consumer"] = "shared"
    skew_buffers: Literal["depth", "double"] = "depth"
    weight_tiling: Literal["reread", "reread_all", "free", "forbid"] = "reread"
    token_blocks: Literal["auto", "allow", "none"] = "auto"
    gradients: Literal["exact", "dfmodel"] = "exact"
    gradient_traffic: Literal["accumulated", "held", "written"] | None = None
    gradient_bandwidth: Bandwidth | None = Field(default=None, gt=0)
    gradient_overlap: Literal["backward", "calculon", "calculon_or_none"] | None = None
    parameter_overlap: Literal["forward"] | None = None
    backward_gathers: Literal["layer", "kept", "kept_calculon"] | None = None
    tensor_overlap: TensorOverlap | None = None
    collective_work: Literal["every", "first", "first_adds"] | None = None
    operand_traffic: Literal["own", "own_tiled"] | None = None
    optimizer_step: Literal["adam", "adam_once"] | None = None
    kernel_overhead: Seconds | None = Field(default=None, ge=0)
    step_overhead: Seconds | None = Field(default=None, ge=0)
    network_dims: Literal["parts", "whole", "placed"] = "parts"
    module_schemes: Literal["all"] | None = None
    schedule: Literal["one_f_one_b", "gpipe"] = "one_f_one_b"
    bubble: Literal["one_f_one_b", "interleaved", "stages"] = "one_f_one_b"
    point_to_point: Literal["per_microbatch", "per_step", "per_neighbour"] = "per_microbatch"
    point_to_point_parts: Literal["scattered", "calculon"] | None = None
    point_to_point_overlap: Literal["hidden", "exposed", "interleaved"] | None = None
    optimizer_bytes_per_parameter: Bytes = Field(default=12.0, ge=0)
    training_memory: Literal["calculon"] | None = None
    offload: Literal["calculon"] | None = None
    layers_exchanged: Literal[1, 2] | None = None
    memory_reserve: Ratio | None = Field(default=None, ge=0, lt=1)
    exchange_buffers: Bytes | None = Field(default=None, ge=0)
    tile_rows: int | None = Field(default=None, ge=1, le=10**9)

    @classmethod
    def _converted(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Before version 3 no partition took its tokens in blocks: what was a profile then is one with a change now.

        Version 1 left execution to the chip, had two levels and split no tokens, where it says nothing else.
        """
        if data.get("token_blocks") is None:
            name = data.get("profile", "default")
            of_today = PROFILES.get(name) if isinstance(name, str) else None
            changed = CHANGED if of_today is not None and of_today.token_blocks != "none" else ""
            data = {**data, "token_blocks": "none"} | ({"profile": f"{name}{changed}"} if changed else {})
        if data["schema"] == "dfopt/assumptions/2":
            return data
        execution = data.get("execution", "auto")
        usual = {"sharding_objective": "seconds", "sequence_parallelism": "none"}
        return {**usual, **data, "execution": "chip" if execution == "auto" else execution}

    @field_validator("token_blocks", mode="before")
    @classmethod
    def _none_is_a_word(cls, value: Any) -> Any:
        """``null`` was the word for ``none`` in earlier versions."""
        return "none" if value is None else value

    @property
    def splits_tokens(self) -> bool:
        """Whether tensor-parallel chips may split tokens (sequence parallelism)."""
        return self.sequence_parallelism != "none"

    def hides_hops_in(self, chunks: int) -> bool:
        """Whether a stage of ``chunks`` chunks computes while it sends to its neighbours; for resolved assumptions.

        Examples
        --------
        >>> [Assumptions(point_to_point_overlap="interleaved").hides_hops_in(chunks) for chunks in (1, 2)]
        [False, True]
        """
        overlap = self.point_to_point_overlap
        if overlap is None or (overlap == "interleaved" and chunks == 1):
            return self.overlap == "perfect"
        return overlap != "exposed"

    @property
    def blocks_tokens(self) -> bool:
        """Whether partitions may take their tokens in blocks; for resolved assumptions."""
        allowed = self.token_blocks == "allow" and self.execution == "dataflow"
        return allowed and self.compute_model != "cycle" and self.weights_from_dram

    @property
    def gradient_passes(self) -> int:
        """Number of times that an evaluation moves a weight gradient between memory and chip."""
        return 1 if self.gradient_traffic == "written" else 2

    @property
    def by_layer(self) -> bool:
        """Whether all that a layer needs in training counts at the same time, as in Calculon."""
        return self.training_memory == "calculon" and self.gradients == "exact"

    @property
    def by_tiles(self) -> bool:
        """Whether products overlap with collectives tile by tile, so that chips store only a tile of what is sent."""
        return self.tensor_overlap not in (None, "waves")

    def hiding(self, way: str | None) -> Assumptions:
        """The assumptions with another way to overlap products and collectives; unchanged if ``way`` is None.

        Where nothing is hidden, nothing is counted as in products that hide something.

        Examples
        --------
        >>> Assumptions(tensor_overlap="ring", operand_traffic="own_tiled").hiding("none").operand_traffic
        'own'
        """
        if way is None or way == self.tensor_overlap:
            return self
        changes: dict[str, Any] = {"tensor_overlap": None if way == "none" else way}
        if way == "none":
            changed = {"operand_traffic": ("own_tiled", "own"), "collective_work": ("first_adds", "first")}
            changes |= {name: then for name, (before, then) in changed.items() if getattr(self, name) == before}
        return self if all(getattr(self, name) == value for name, value in changes.items()) else self.with_(**changes)

    def __repr__(self) -> str:
        usual = type(self)(profile=self.profile)
        names = [name for name in type(self).model_fields if getattr(self, name) != getattr(usual, name)]
        more = f", {', '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)} not as usual" * bool(names)
        return f"Assumptions({self.profile}{more})"

    __str__ = __repr__

    def with_(self, **changes: Any) -> Assumptions:
        """A copy with some fields changed, validated again."""
        fields = {**self.model_dump(by_alias=False, exclude={"schema_"}), **changes}
        return Assumptions(**fields)

    def changed(self, fields: Mapping[str, Any], path: str = "") -> Assumptions:
        """A copy with some fields given as in a file; ``path`` names them in errors."""
        changed = Assumptions.from_data({**self.to_data(), **fields}, path=path)
        if changed == self:
            return self
        return changed.model_copy(update={"profile": f"{self.profile.removesuffix(CHANGED)}{CHANGED}"})


_DFMODEL = Assumptions(profile="dfmodel", **DFMODEL)
PROFILES: dict[str, Assumptions] = {
    "default": Assumptions(),
    "ideal": Assumptions(),  # another word for it, beside what was measured
    "dfmodel": _DFMODEL,
    "dfmodel-allow-empty": _DFMODEL.with_(profile="dfmodel-allow-empty", empty_partitions="allow"),
}


def profile(name: str) -> Assumptions:
    """The profile of assumptions of this name; `NotInZoo` if there is none.

    Examples
    --------
    >>> profile("dfmodel").all_reduce_passes, profile("ideal") == profile("default")
    (2, True)
    """
    if name not in PROFILES:
        raise NotInZoo(name, close_matches(name, PROFILES) or sorted(PROFILES), kind="assumptions")
    return PROFILES[name]
