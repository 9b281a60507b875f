"""Keywords of solve and load_graph, for type checkers and editors: made by tests/keyword_types.py."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

class Parameters(TypedDict, total=False):
    isl: int
    microbatch: int | str | Sequence[int]
    batch: int | Literal["max"]
    mode: Literal["forward", "training"]
    word_bytes: int
    dtypes: Any
    causal: bool
    recompute: str | Sequence[str]
    main_gradients: str | None
    trained: Any
    hidden: int
    heads: int
    head_dim: int
    layers: Any
    drawn: Any
    checkpoint_every: int | None
    ffn: Any
    qkv: Literal["apart", "joined"]
    fused_activation: bool
    qkv_input_kept: bool
    ends: bool | None
    phase: Literal["forward", "training", "prefill", "decode", "verify", "mixed"]
    context: int | None
    draft: int
    tree: Any
    cached: int
    segments: Any
    positions: int | None
    page: int
    routing: Any
    scores_dropout: bool
    hidden_dropout: bool | None
    loss_bytes: str | None
    loss_held: str | None
    kv_heads: int | None
    rotary: bool
    experts: int | None
    chosen: int
    gated_mlp: bool
    norm: Literal["rmsnorm", "layernorm"]
    post_norm: bool
    vocab: Any
    tie_embeddings: bool
    learned_positions: int
    bias: Literal["none", "qkv", "all"]
    qk_norm: Literal["none", "head", "all"]
    rotary_base: float | str | None
    rotary_scaling: float | str | None
    window: int | None
    global_every: int | None
    final_norm: bool
    embedding_norm: bool
    token_types: int
    input: Any
    condition: Any
    form: Any
    head: Any
    streams: Any
    sections: Any
    predict: bool
    products: Literal["all_tokens", "each_token"]
    tables: Any
    embedding_dim: int
    dense_features: int | None
    bottom: Any
    mlp_dim: int | None
    bottom_layers: int | None
    top_layers: int | None
    interaction: Literal["dot", "concat", "dcn", "none"]
    dcn_layers: int
    dcn_rank: int
    table_optimizer: Literal["rowwise_adagrad", "adagrad", "adam", "sgd"]
    encoding: Literal["exact", "dfmodel"]
    stream: Literal["n", "none"]
    length: int
    radix: int | None
    transposes: int
    n: int
    block: int
    first: int | None
    osl: int
    repeat: int

class Asked(Parameters, total=False):
    tp: int
    mp: int
    pp: int
    dp: int
    tp_dims: Sequence[str]
    mp_dims: Sequence[str]
    pp_dims: Sequence[str]
    dp_dims: Sequence[str]
    schedule: Literal["1f1b", "interleaved", "gpipe"] | None
    interleave: int | None
    first_layers: int | None
    last_layers: int | None
    two_batch_overlap: bool | None
    zero: int | Sequence[int] | Literal["all"] | None
    zero_replicas: int | Sequence[int] | Literal["all"] | None
    recompute_layers: int | None
    sequence_parallelism: Literal["none", "allow", "force"] | None
    tp_comm_overlap: Literal["none", "ring", "pipe", "waves", "any"] | None
    gradient_overlap: Literal["none", "backward", "any"] | None
    param_gather_overlap: Literal["none", "forward", "any"] | None
    p2p_overlap: Literal["none", "interleaved", "any"] | None
    p_max: int | None
    formulation: Literal["auto", "assignment", "columns"]
    gap: float | str
    time_limit: float | str
    solver: str
    seed: int
    top: int
    distinct: Literal["plan", "sharding"] | None
    heat: Literal["ignore", "aware"]
    sensitivity: bool
    objective: Any
    ep: int | None
    cp: int | None
    attention_dp: int | None
    module: Mapping[str, str]
    parallelism: Literal["tp_pp_dp", "expanded", "per_module"] | None
    rank_order: str | None
    place: Mapping[str, str] | None
    offload: Sequence[str] | Literal["any"] | None
    shard: Mapping[str, str]
    pin: Mapping[str, int]
    chips: int
    nodes: int
    set: Mapping[str, Any]
    parameters: Mapping[str, Any]
