"""Write the accounting rules into the page of the formulation: ``python tests/guide/rules_table.py --write``.

The table is made from the charges that the rules yield for some layers: which resources each adds to, and what decides
how often a block pays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.plan import Plan
from dfopt.setting.instance import Setting
from dfopt.terms.charges import Term
from dfopt.terms.layer import Layer
from dfopt.terms.rules import TERMS

PAGE = Path(__file__).resolve().parents[2] / "dfopt" / "guide" / "formulation.md"
START, END = "<!-- rules: tests/guide/rules_table.py -->", "<!-- end of rules -->"
RESOURCES = {
    "compute_s": "compute (s)",
    "compute_tiles": "compute tiles for a latency (1)",
    "network_s": "communication (s)",
    "dram_bytes": "bytes to and from DRAM, as its fastest memory counts them (B)",
    "sram_traffic_bytes": "bytes read from SRAM and written there (B)",
    "buffer_bytes": "bytes in SRAM of tensors that wait or move (B)",
    "cut_buffer_bytes": "the part of them that is cut with the weight of a kernel (B)",
    "stationary_bytes": "bytes in SRAM of weights and of gradients that are added up (B)",
    "reread_bytes": "bytes that a kernel in weight parts moves again for each further one (B)",
    "token_bytes": "bytes in SRAM of tensors that blocks of tokens cut, of all tokens (B)",
    "beside_token_bytes": "bytes in SRAM beside them where tokens come in blocks (B)",
    "block_reread_bytes": "bytes that each further block of tokens reads again (B)",
    "block_access_bytes": "bytes that pass through SRAM again for each further block of tokens (B)",
    "all_tokens": "kernels and tensors that need all tokens at once (1)",
    "waiting_bytes": "bytes that wait in DRAM until they were read (B)",
    "weights": "weights, but for those of routed experts (B)",
    "weights_copied": "weights that all chips of the second axis have (B)",
    "experts": "weights of routed experts (B)",
    "experts_copied": "weights of routed experts that all chips of the second axis have (B)",
    "parameters": "parameters, which gradients and the optimizer go by (1)",
    "parameters_copied": "parameters that all chips of the second axis have (1)",
    "gradient_bytes": "weight gradients that copies of the batch add up (B)",
    "gradient_bytes_copied": "weight gradients that chips of the second axis add up, too (B)",
    "cached_bytes": "caches of sequences (B)",
    "saved_bytes": "activations kept for the backward pass (B)",
    "working_bytes": "activations there while a layer runs (B)",
    "legal": "infinite where options cannot be together (1)",
}
"""What rules add to, by name, with the unit of each: s, B, or 1 for none."""
PAID = {
    "Has": "the partition of the kernel (A)",
    "AnyOf": "each partition with any of some kernels",
    "Crosses": "each end of a cut tensor (D)",
    "Inside": "the partition that a tensor stays in (B)",
    "Open": "each partition while a cut tensor waits (L)",
    "Exactly": "each partition, by which of some readers it has",
}


def layers() -> Iterator[Layer]:
    """Layers in which every rule has something to say."""
    split, alone = {"sequence_parallelism": "allow", "kernel_overhead": 1e-6}, "kernel_by_kernel"
    asked: list[tuple[str, str, dict[str, str], dict[str, object], int]] = [
        ("gpt2-small", "sn10-8-ring", {"phase": "training"}, split, 4),
        ("gpt2-small", "sn10-8-ring", {"phase": "training"}, {"compute_model": "cycle"}, 4),
        ("gpt2-small", "sn10-8-ring", {"phase": "training"}, {"sequence_parallelism": "allow"}, 1 << 20),
        ("llama-3.2-1b", "h100-8", {"phase": "decode"}, {"operand_traffic": "own", "execution": alone}, 4),
        ("jamba-1.5-mini", "gaudi3-8", {"phase": "prefill"}, {}, 4),
        ("dlrm-v2-mlperf", "h100-8", {}, {}, 4),
        ("gpt2-small", "sn10-8-ring", {"phase": "training"}, {"gradients": "dfmodel"}, 4),
        ("gpt2-small", "sn10-8-ring", {"phase": "training"}, {"token_blocks": "allow"}, 4),
    ]
    for graph, system, parameters, changes, tiles in asked:
        machine = df.load_system(system)
        sram = machine.chip.sram.model_copy(update={"bandwidth": 1e14})
        machine = machine.model_copy(update={"chip": machine.chip.model_copy(update={"sram": sram})})
        (dim,) = machine.network
        setting = Setting.resolved(df.load_graph(graph, **parameters), machine, profile("default").with_(**changes))
        copies = changes.get("gradients") == "dfmodel"  # which alone add anything up in every evaluation
        plan = Plan(dp=dim.size, dp_dims=(dim.name,)) if copies else Plan(tp=dim.size, tp_dims=(dim.name,))
        yield Layer(setting.under(plan).shared, tiles)


def row(term: Term, all_layers: list[Layer]) -> str:
    """What a rule charges, who pays, and where it is from."""
    charges = [charge for layer in all_layers for charge in term.charges(layer) if charge.amount.any()]
    named = dict.fromkeys(RESOURCES[charge.resource] for charge in charges)
    paid = dict.fromkeys(PAID[type(charge.incidence).__name__] for charge in charges)
    assert charges, f"no layer has anything of {term.name}"
    return f"| {term.name} | {'; '.join(named)} | {'; '.join(paid)} | {term.source} |"


def table() -> str:
    """The whole table, as it stands between the marks."""
    known = list(layers())
    head = ["| rule | adds to | paid by | source |", "| --- | --- | --- | --- |"]
    return "\n".join([START, "", *head, *(row(term, known) for term in TERMS), "", END])


def page() -> str:
    """The page with the table of today."""
    text = PAGE.read_text(encoding="utf-8")
    return text[: text.index(START)] + table() + text[text.index(END) + len(END) :]


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(table())
