"""Everything that a chip holds while it trains, counted by hand: each part with what shares it, stage by stage.

A layer of hidden size h and a heads, s tokens of b samples: 12 h^2 parameters; Korthikanti et al. (arXiv:2205.05198),
section 4, has what its backward pass needs, in bytes: inputs of both norms 4 sbh, of the products 2 (QKV) + 2 (output
of attention) + 2 + 8 sbh, queries, keys and values 6 sbh, the softmax and what is left of it 4 as^2 b, the input of the
GeLU 8 sbh, and masks of a byte: 2 sbh of hidden features and as^2 b of scores.
"""

from __future__ import annotations

from typing import Any

import pytest

import dfopt as df
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.workloads import expand

H, A, S, V, LAYERS, BATCH = 64, 4, 32, 512, 4, 8
RULES = df.Assumptions(execution="kernel_by_kernel", sharding_objective="seconds")
SAVED = {
    "none": 4 + 6 + 2 + 2 + 2 + 8 + 8 + 2 + 5 * A * S / H,
    "attention": 4 + 6 + 2 + 2 + 2 + 8 + 8 + 2,
    "full": 2,
    "layernorm+attention": 4 + 6 + 2 + 8 + 8 + 2,  # not what norms give to products
    "mlp+attention": 4 + 6 + 2 + 2 + 2 + 2,  # nothing inside the MLP
    "op+attention": 2 + 2 + 2 + 2 + 8,  # the input; of six products the first, third and fifth; what attention gives
}
"""Bytes for each of sbh elements, by what is computed again; all of it: the input of the layer."""


def graph(**more: Any) -> df.Graph:
    parameters = {
        "hidden": H, "heads": A, "head_dim": H // A, "ffn": 4 * H, "vocab": V, "seq": S, "layers": LAYERS,
        "batch": BATCH, "microbatch": 1, "mode": "training", "ends": True, "rotary": False, "gated_mlp": False,
        "norm": "layernorm", "scores_dropout": True, "tie_embeddings": False, "dtypes": {"logits": "fp32"},
    }  # fmt: skip
    data = {"schema": df.Graph.SCHEMA, "name": "small", "workload": "decoder", "parameters": parameters | more}
    return expand(data, "")


def solved(drawn: df.Graph, tp: int, pp: int, **asked: Any) -> df.Result:
    asked |= {"tp": tp, "pp": pp, "dp": 8 // tp // pp, "interleave": 1, "sensitivity": False}
    pins = megatron_shardings(drawn, tp, True)
    return df.optimize(drawn, "a100-8", assumptions=RULES, pin_sharding=pins, **asked)


@pytest.mark.parametrize(
    ("recompute", "tp", "pp", "zero"),
    [
        *((each, *degrees) for each in ("none", "attention", "full") for degrees in ((1, 1, 0), (2, 2, 1), (2, 1, 3))),
        *((each, 2, 2, 1) for each in ("layernorm+attention", "mlp+attention", "op+attention")),
    ],
)
def test_a_chip_holds_what_a_count_by_hand_gives(recompute: str, tp: int, pp: int, zero: int) -> None:
    rules = RULES.with_(layers_exchanged=2, exchange_buffers=1e6)
    found, copies = solved(graph(recompute=recompute), tp, pp, zero=zero), 8 // tp // pp
    score = df.evaluate(found.mapping, found.graph, found.system, rules)
    share = {level: copies if zero >= level else 1 for level in (1, 2, 3)}
    for stage, held in enumerate(one.states["dram"] for one in score.stages):
        first, last, layers = stage == 0, stage == pp - 1, LAYERS // pp
        of_layers, table, head = 12 * H * H * layers / tp, V * H / tp * first, V * H / tp * last
        parameters = of_layers + table + head
        gathered = 2.0 * 2 * 12 * H * H / tp if zero == 3 else 0.0  # two layers: one computes, one is brought
        assert held["weights"] == 2 * (of_layers + head) / share[3] + gathered
        assert held.get("tables", 0.0) == 2 * table
        whole = 2.0 * 2 * 12 * H * H / tp if zero >= 2 else 0.0  # of two layers, in bf16, before they are scattered
        assert held["gradients"] == 4 * parameters / share[2] + whole + 1e6
        assert held["optimizer"] == 12 * parameters / share[1]
        parts = score.memory[stage]
        in_flight = pp - stage
        kept = SAVED[recompute] * S * H * layers * in_flight
        at_the_end = (2 * S * H + 4 * S * V) * last  # input of the product, and logits in fp32
        assert parts.activations_b + parts.checkpoints_b == (kept + at_the_end) / tp
        # where layers keep nothing but what they begin with, that is a checkpoint; the ends have their own
        assert parts.checkpoints_b == (kept / tp if recompute == "full" else 0) or recompute not in ("none", "full")
        assert parts.weight_gradients_b == held["gradients"] and parts.optimizer_b == held["optimizer"]
        assert parts.weights_b == held["weights"] + held.get("tables", 0.0)
        assert sum(held.values()) == pytest.approx(parts.total, rel=1e-12)


def test_fewer_checkpoints_wait_and_more_layers_are_at_work() -> None:
    """Of two layers behind a checkpoint half as many wait, and the backward pass holds what both leave it."""
    found = {}
    for every in (1, 2):
        asked = solved(graph(recompute="full+attention", checkpoint_every=every), 1, 2, zero=0)
        found[every] = [(one.checkpoints_b, one.working_b) for one in asked.score.memory], asked
    (once, plain), (twice, fewer) = found[1], found[2]
    for stage, ((kept, at_work), (less, more)) in enumerate(zip(once, twice, strict=True)):
        assert (kept, less) == (2 * S * H * 2 * (2 - stage), 2 * S * H * (2 - stage))
        assert more > 1.5 * at_work
    # the last product and sum of the first layer run again too, which nothing reads of a layer by itself
    again = {kernel.stage_with for kernel in fewer.graph.kernels if kernel.pass_ == "recompute"}
    assert {"Down_Proj.0", "Add_2.0"} <= again and not {"Down_Proj.1", "Add_2.1", "Residual_In.0"} & again
    assert fewer.score.flop_per_step > plain.score.flop_per_step


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"recompute": "attention"}, "but recompute: attention"),
        ({"recompute": "full/none"}, "but recompute: full/none"),
        ({"recompute": "full", "mode": "forward"}, "behind a checkpoint, but"),
        ({"recompute": "full", "checkpoint_every": 3}, "found 3 layers behind a checkpoint, of 4"),
    ],
)
def test_checkpoints_that_cannot_be_are_told(more: dict[str, Any], words: str) -> None:
    with pytest.raises(df.DocumentError, match=words):
        graph(**{"checkpoint_every": 2, **more})
