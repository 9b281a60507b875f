"""What the model takes for granted, as a document with named profiles.

Two results are comparable only if their assumptions are equal, so every result carries them.
Each field exists because two sources differ (DFModel's paper, its program's versions, physics);
``default`` takes the most physical choice for each and no loss that has to be measured, so it is called ``ideal`` too;
``dfmodel`` takes the choice behind the paper's Table VI and Figs. 10-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from dfopt.documents.base import Document
from dfopt.errors import NotInZoo, close_matches
from dfopt.units import Bandwidth, Bytes, Ratio, Seconds

Overlap = Literal["auto", "perfect", "none", "compute_memory"]

CHANGED = " (changed)"
"""Behind the name of a profile of which fields were changed."""


class Assumptions(Document):
    """Every convention that changes a number."""

    SCHEMA: ClassVar[str] = "dfopt/assumptions/2"
    EARLIER: ClassVar[tuple[str, ...]] = ("dfopt/assumptions/1",)

    profile: str = "default"
    execution: Literal["auto", "chip", "dataflow", "library", "kernel_by_kernel"] = Field(
        default="auto",
        description="which kernels may share a partition: all (dataflow), those that a kernel of a library does at once"
        " (library, see dfopt.physics.library), none (kernel_by_kernel); chip: all or none, as the chip says; auto: the"
        " same, but a library's where the chip runs kernel by kernel",
    )
    overlap: Overlap = Field(
        default="auto",
        description="partition time: perfect = max(compute, memory, network); none = their sum; compute_memory ="
        " max(compute, memory) + network; auto = perfect on dataflow chips, compute_memory otherwise",
    )
    compute_model: Literal["fixed", "cycle", "efficiency"] = Field(
        default="fixed",
        description="fixed: one share of peak, tiles balanced perfectly; efficiency: the same with a share for each"
        " kernel, by the size of its shard, from the chip's table; cycle: lanes x stages cycles",
    )
    compute_utilization: Ratio | None = Field(
        default=None, gt=0, le=1, description="share of peak under the fixed model; none = the chip's own"
    )
    sharding_objective: Literal["joint", "seconds", "bytes"] = Field(
        default="joint",
        description="joint: sharding and fusion found together; seconds: a sharding of least compute and"
        " communication, then the best fusion for it; bytes: the same with all collectives alike, then fewest"
        " conversions, then split kernels",
    )
    sharding_rules: Literal["exact", "dfmodel"] = Field(
        default="exact", description="which layouts a sharding needs and whether normalisations may be split"
    )
    sequence_parallelism: Literal["none", "allow", "force"] = Field(
        default="allow",
        description="allow: elementwise kernels may be split along the tokens (n), split contractions reduce-scattered"
        " along them (k>n); one all-gather serves all readers, and what the backward pass needs is gathered again;"
        " force: nothing that can be is done whole or all-reduced instead, as Megatron-LM's --sequence-parallel",
    )
    masked_scores: Literal["fused", "skipped"] = Field(
        default="fused",
        description="what a mask hides of attention's scores: fused = skipped on dataflow chips, and by one kernel of a"
        " library for all of attention, which keeps no scores; else computed, moved and kept; skipped = nowhere",
    )
    collective_model: Literal["exact", "two_stage", "dfmodel"] = Field(
        default="exact",
        description="exact: alpha-beta time of the best algorithm per topology; two_stage: the same algorithms, but a"
        " round waits for its acknowledgement (two latencies) and packet headers take bandwidth; dfmodel: its table",
    )
    all_reduce_passes: Literal[1, 2] = Field(default=2, description="of the dfmodel table only")
    all_to_all_messages: Literal["crossing", "all"] = Field(
        default="crossing",
        description="of the dfmodel table only: messages of c chips that a cut carries, those that cross it one way"
        " (c^2/4) or all (c^2), as in the version behind DFModel's FFT runs of Fig. 6",
    )
    all_to_all_dims: Literal["together", "in_turn"] = Field(
        default="together",
        description="of an all-to-all over several network dims, but for the dfmodel table: together = dims carry parts"
        " of it at the same time, as direct messages do, and the slowest decides; in_turn = one dim after the other",
    )
    stage_time: Literal["sum", "max"] = Field(default="sum", description="of compute, network and point-to-point time")
    weights_from_dram: bool = Field(default=True, description="whether a partition reads its weights from DRAM")
    layer_boundary: Literal["dram", "free"] = Field(
        default="dram",
        description="whether tensors between layers and the graph's inputs and outputs pass through DRAM",
    )
    empty_partitions: Literal["allow", "forbid"] = Field(
        default="allow", description="forbid: exactly p_max partitions, as in DFModel's Table VI"
    )
    forward_backward: Literal["separate", "halves", "shared"] = Field(
        default="separate",
        description="separate: no partition mixes them, forward first; halves: forward in the first half of p_max"
        " partitions; shared: no rule",
    )
    fanout: Literal["shared", "per_consumer"] = Field(
        default="shared", description="whether a tensor read by three kernels is stored once or three times"
    )
    skew_buffers: Literal["depth", "double"] = Field(
        default="depth", description="tiles buffered inside a partition: level difference + 1, or always two"
    )
    weight_tiling: Literal["reread", "reread_all", "free", "forbid"] = Field(
        default="reread",
        description="a weighted kernel that does not fit runs alone in f weight parts; reread: its inputs are read f"
        " times; reread_all: its outputs are written f times too (DFModel's latest version); free: neither",
    )
    gradients: Literal["exact", "dfmodel"] = Field(
        default="exact",
        description="exact: gradient accumulators take SRAM and DRAM traffic and are reduced at the end of the step;"
        " dfmodel: free, and their all-reduce is spread over the microbatches",
    )
    gradient_traffic: Literal["accumulated", "held", "written"] | None = Field(
        default=None,
        description="of gradients: exact only, what an evaluation moves of a weight gradient: accumulated = read,"
        " added to and written back, in the type of activations; held = the same in the type in which gradients are"
        " held (main_gradients); written = written, as Calculon counts it; none = accumulated",
    )
    gradient_bandwidth: Bandwidth | None = Field(
        default=None,
        gt=0,
        description="of gradients: dfmodel only: rate at which copies exchange them, per pass, whatever the network;"
        " none = by its table. DFModel's DLRM runs add bytes to nanoseconds, which is 1 GB/s",
    )
    gradient_overlap: Literal["backward", "calculon", "calculon_or_none"] | None = Field(
        default=None,
        description="of gradients: exact, in layers that repeat: none = copies add them up after the step; backward ="
        " those of a layer as soon as its last backward pass is done, while layers before it still compute, which that"
        " does not slow down: see dfopt.physics.overlap; calculon = what that program counts as shown, of layers of one"
        " kind, which may be more than is exchanged: see dfopt.physics.window; calculon_or_none = the less of the two",
    )
    parameter_overlap: Literal["forward"] | None = Field(
        default=None,
        description="of gradient_overlap: backward, where copies share out the optimizer's state (ZeRO 1, and 2 in one"
        " microbatch): none = weights are brought together after the step; forward = layer by layer, while the first"
        " forward pass of the next step computes, as in Megatron-LM (its overlap_param_gather)",
    )
    backward_gathers: Literal["layer", "kept", "kept_calculon"] | None = Field(
        default=None,
        description="of sequence_parallelism allow: what the backward pass needs of saved tensors is gathered again by"
        " every partition that reads them (none), or once in a layer for all of them, where the tensor is made (layer;"
        " while they wait, memory holds it as it lies, as without);"
        " kept = never: what the forward pass gathered is there, beside what chips hold of it, unless products hide"
        " what they gather, and have a tile; mappings are scored with it, and searched where they do; kept_calculon ="
        " the same, but once in a layer where its readers feed what is computed again, as that program has it",
    )
    tensor_overlap: Literal["ring", "pipe", "pipe_twice"] | None = Field(
        default=None,
        description="collectives between chips that share a product: none = before or behind it; ring = tile by tile,"
        " while it computes, which slows it down as the dims say (processor_usage); pipe = the same, but it waits for"
        " the first tile; pipe_twice = for that twice, as Calculon counts it (see dfopt.physics.tiled)",
    )
    collective_work: Literal["every", "first", "first_adds"] | None = Field(
        default=None,
        description="what a collective between chips that share a kernel takes of the chip beside the network: none ="
        " nothing; every = it adds up what it reduces, and reads and writes its tensor (see dfopt.physics.beside);"
        " first = the same, but of communications that are done again the network alone, as Calculon counts them;"
        " first_adds = of these, it only adds up, as Calculon counts those that overlap with a product",
    )
    operand_traffic: Literal["own", "own_tiled"] | None = Field(
        default=None,
        description="DRAM traffic of a tensor between kernels: none = what its source holds of it, written and read;"
        " own = kernel by kernel only, each writes all that it makes, partial sums too, and reads what its scheme needs"
        " of an operand, all of what was gathered (see dfopt.physics.operands); own_tiled = the same, but products of"
        " the backward pass move a tile of what is gathered or reduced, as Calculon counts those that overlap with it",
    )
    optimizer_step: Literal["adam", "adam_once"] | None = Field(
        default=None,
        description="of gradients: exact, when training: none = no time; adam = 11 FLOP for a parameter, its state read"
        " and written, its gradient read, its weight written, shared out as the plan's zero says; adam_once = the state"
        " is moved once and nothing else, as Calculon counts it",
    )
    kernel_overhead: Seconds | None = Field(
        default=None,
        ge=0,
        description="s, of starting a partition: part of its communication time, hidden only where that is (overlap)",
    )
    step_overhead: Seconds | None = Field(
        default=None, ge=0, description="s, once per step, hidden behind nothing; none = 0"
    )
    network_dims: Literal["parts", "whole", "placed"] = Field(
        default="parts",
        description="parts: a network dim may be shared by several parallelisms, each on groups of its chips;"
        " whole: every dim carries one, as in DFModel; placed: parts, and on all rings and lines it is searched where"
        " the chips of each lie: nested in every order, and around blocks of two dims. parts has that inside packages",
    )
    schedule: Literal["one_f_one_b", "gpipe"] = Field(
        default="one_f_one_b",
        description="order of microbatches in a pipeline that trains: one_f_one_b holds the activations of at most pp"
        " of them, and may be interleaved over chunks of layers; gpipe holds all of them",
    )
    bubble: Literal["one_f_one_b", "interleaved", "stages"] = Field(
        default="one_f_one_b",
        description="(pp-1) times of the slowest stage over the plan's interleaving, or DFModel's (pp-1)/(layers-1);"
        " stages: the own times of the others, as the schedule has them: see dfopt.physics.fill",
    )
    point_to_point: Literal["per_microbatch", "per_step", "per_neighbour"] = Field(
        default="per_microbatch",
        description="of layers that repeat: per_microbatch: every chunk of them hands on what one does in the middle of"
        " the pipeline; per_neighbour: the same, but the last one sends nothing on and the first one nothing back;"
        " per_step: one hop per layer, once per step, as DFModel has it",
    )
    point_to_point_parts: Literal["scattered", "calculon"] | None = Field(
        default=None,
        description="scattered: of a tensor that chips sharing kernels hold whole each may send its part to the next"
        " stage, which gathers them, where that is faster (Megatron-LM's scatter-gather); calculon = each does, and the"
        " two all-reduces of a layer that hands it on are reduce-scatters and all-gathers, with one of these more where"
        " something is computed again; none = each sends all of it",
    )
    point_to_point_overlap: Literal["hidden", "exposed", "interleaved"] | None = Field(
        default=None,
        description="whether a stage works while it sends to the next one; none = hidden under overlap: perfect only;"
        " interleaved = where it has several chunks of layers, of which another one computes meanwhile, as in"
        " Megatron-LM (its overlap_p2p_comm)",
    )
    optimizer_bytes_per_parameter: Bytes = Field(
        default=12.0, ge=0, description="DRAM held by the optimizer when training (Adam, FP32 master: 12 B)"
    )
    training_memory: Literal["calculon"] | None = Field(
        default=None,
        description="of gradients: exact, what a chip holds for one layer while it trains. none: what waits between"
        " partitions, and gradients of all layers alike. calculon: everything that its backward pass reads or makes at"
        " once; gradients of that layer in 4 B each, those of others shared out like the optimizer's state; and of"
        " interleaved chunks more microbatches than there may be: see dfopt.physics.working",
    )
    offload: Literal["calculon"] | None = Field(
        default=None,
        description="of what lies in a slower memory while a graph trains: none = every pass of a layer moves what it"
        " needs at one rate for both directions, the optimizer's step reads and writes its state there once; calculon ="
        " both directions at once, and the state with every microbatch: see dfopt.physics.offload",
    )
    layers_exchanged: Literal[1, 2] | None = Field(
        default=None,
        description="layers that a chip has whole at a time of what copies share out: gathered weights under ZeRO-3,"
        " and under 2 and 3 gradients that are not reduce-scattered yet. 2 = of one that computes and of one that is"
        " sent meanwhile (prefetch); none = weights of one, and no gradients",
    )
    memory_reserve: Ratio | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="share of each memory of a chip that a model cannot use: framework, communication buffers,"
        " fragmentation; none = the chip's own, which its file has for training and for serving; 0 = all is usable",
    )
    exchange_buffers: Bytes | None = Field(
        default=None,
        ge=0,
        description="of gradients: exact, DRAM of each chip for buckets of gradients that copies add up, beside these:"
        " none = 0, as in Megatron-LM, where they are parts of the gradients; DeepSpeed: reduce_bucket_size elements"
        " (5e8), twice with overlap_comm; PyTorch's DDP: as much as the gradients, unless gradient_as_bucket_view",
    )
    tile_rows: int | None = Field(
        default=None,
        ge=1,
        le=10**9,
        description="rows of one tile along the streamed axis; none = the optimizer's choice (one row, unless under"
        " the cycle model times depend on it)",
    )

    @classmethod
    def _converted(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Version 1 left execution to the chip, had two levels and split no tokens, where it says nothing else."""
        execution = data.get("execution", "auto")
        usual = {"sharding_objective": "seconds", "sequence_parallelism": "none"}
        return {**usual, **data, "execution": "chip" if execution == "auto" else execution}

    @property
    def splits_tokens(self) -> bool:
        """Whether chips that share kernels may split tokens."""
        return self.sequence_parallelism != "none"

    def hides_hops_in(self, chunks: int) -> bool:
        """Whether a stage of so many chunks of layers works while it sends to its neighbours; of resolved assumptions.

        Examples
        --------
        >>> [Assumptions(point_to_point_overlap="interleaved").hides_hops_in(chunks) for chunks in (1, 2)]
        [False, True]
        """
        said = self.point_to_point_overlap
        if said is None or (said == "interleaved" and chunks == 1):
            return self.overlap == "perfect"
        return said != "exposed"

    @property
    def gradient_passes(self) -> int:
        """How often an evaluation moves the gradient of a weight between memory and chip."""
        return 1 if self.gradient_traffic == "written" else 2

    @property
    def by_layer(self) -> bool:
        """Whether everything that a layer needs to train is counted at once, as Calculon does."""
        return self.training_memory == "calculon" and self.gradients == "exact"

    def hiding(self, way: str | None) -> Assumptions:
        """The same where products hide collectives in some way, or not at all; as they say if none is given.

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
            apart = {"operand_traffic": ("own_tiled", "own"), "collective_work": ("first_adds", "first")}
            changes |= {name: then for name, (found, then) in apart.items() if getattr(self, name) == found}
        return self if all(getattr(self, name) == value for name, value in changes.items()) else self.with_(**changes)

    def with_(self, **changes: Any) -> Assumptions:
        """A copy with some fields changed, validated again."""
        fields = {**self.model_dump(by_alias=False, exclude={"schema_"}), **changes}
        return Assumptions(**fields)

    def changed(self, fields: Mapping[str, Any], path: str = "") -> Assumptions:
        """A copy with some fields as a file says them, which ``path`` names in errors; itself if there are none."""
        if not fields:
            return self
        name = f"{self.profile.removesuffix(CHANGED)}{CHANGED}"
        return Assumptions.from_data({**self.to_data(), **fields, "profile": name}, path=path)


_DFMODEL = Assumptions(
    profile="dfmodel",
    execution="chip",
    overlap="perfect",
    compute_utilization=0.9,
    sharding_objective="bytes",
    sharding_rules="dfmodel",
    sequence_parallelism="none",
    collective_model="dfmodel",
    all_reduce_passes=2,
    weights_from_dram=False,
    layer_boundary="free",
    empty_partitions="forbid",
    forward_backward="halves",
    fanout="per_consumer",
    weight_tiling="free",
    gradients="dfmodel",
    bubble="interleaved",
    point_to_point="per_step",
    network_dims="whole",
    optimizer_bytes_per_parameter=0.0,
    memory_reserve=0.0,
)

PROFILES: dict[str, Assumptions] = {
    "default": Assumptions(),
    "ideal": Assumptions(),  # another word for it, beside what was measured
    "dfmodel": _DFMODEL,
    "dfmodel-allow-empty": _DFMODEL.with_(profile="dfmodel-allow-empty", empty_partitions="allow"),
}


def profile(name: str) -> Assumptions:
    """The named set of assumptions; `NotInZoo` if there is none of this name.

    Examples
    --------
    >>> profile("dfmodel").all_reduce_passes, profile("ideal") == profile("default")
    (2, True)
    """
    if name not in PROFILES:
        raise NotInZoo(name, close_matches(name, PROFILES) or sorted(PROFILES), kind="assumptions")
    return PROFILES[name]
