"""Rates that one GPU sustains, measured: products, attention, kernels bound by memory, experts, layers, launches.

    python benchmarks/reference/measure_chip.py -o DIR [--seconds 500] [--only SECTION...] [--device cuda]

Writes a table per section into DIR, row by row, so that what is stopped keeps what it has. Needs PyTorch and a CUDA
device, which dfopt itself does not; only reads the device's state. All data are random: zeros draw less power.

Every row says its ``regime``:

* ``burst``: a pause, then some milliseconds of the kernel alone, as tables of kernels for inference are measured: the
  clock is at its highest;
* ``sustained``: the kernel back to back for 0.35 s, of which the last 0.25 s count, on a chip that has been at work:
  the clock is what the power limit leaves;
* ``beside``: kernels bound by memory, each between two products of 1.1 TFLOP, as they stand in a step of training;
* ``mixed``: 2 ms of a product between kernels bound by memory of 1 ms, as products stand there: they draw less power,
  so the clock is higher.

``sm_mhz`` and ``watts`` are means of what NVML said meanwhile. Buffers take turns so that inputs are not in the cache.
Bytes are the least that a kernel moves: each input once and each output once.
"""

# ruff: noqa: B023 - what a loop makes is called before the loop goes on
from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from chip_bench import Bench, turns

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    torch = None

# (outputs, inputs) of products with weights as a chip of TP has them: query-key-value, out, up, down; logits last
WEIGHTS = [
    (2304, 768), (3072, 768), (3072, 1024), (6144, 2048), (2048, 2048), (8192, 2048), (2048, 8192), (12288, 4096),
    (4096, 4096), (16384, 4096), (4096, 16384), (6144, 4096), (28672, 4096), (4096, 14336),  # 1B, 7B, Llama 8B
    (2304, 6144), (3072, 6144), (6144, 768), (6144, 3072), (24576, 6144),  # 22B: TP 8, 1
    (24576, 8192), (8192, 8192), (32768, 8192), (8192, 32768), (10240, 8192), (57344, 8192), (8192, 28672),  # 70B
    (6144, 8192), (8192, 2048), (2560, 8192), (14336, 8192), (8192, 7168),  # 70B: TP 4
    (1280, 8192), (7168, 8192), (8192, 1024), (8192, 3584),  # TP 8
    (9216, 12288), (12288, 3072), (4608, 12288), (12288, 1536), (6144, 12288), (12288, 6144),  # 175B: TP 4, 8
    (9600, 20480), (10240, 20480), (20480, 10240), (12800, 25600), (25600, 3200),  # 530B, 1T: TP 8
    (50304, 2048), (50304, 4096), (128256, 4096), (16032, 8192), (6400, 12288),  # logits
]  # fmt: skip
EIGHT = [
    (2048, 2048), (8192, 2048), (4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (8192, 8192),
    (57344, 8192), (8192, 28672), (2560, 8192), (14336, 8192), (8192, 7168), (1280, 8192), (7168, 8192), (8192, 1024),
]  # fmt: skip
# name, experts, rows, hidden, ffn: of a chip; rows are tokens times experts that each chooses
EXPERTS = [
    ("mixtral-8x7b", 8, 16384, 4096, 14336), ("mixtral-8x7b", 2, 16384, 4096, 14336),
    ("mixtral-8x7b", 1, 8192, 4096, 14336), ("mixtral-8x22b", 1, 8192, 6144, 16384),
    ("qwen3-30b-a3b", 128, 32768, 2048, 768), ("qwen3-30b-a3b", 16, 32768, 2048, 768),
    ("qwen3-30b-a3b", 16, 65536, 2048, 768), ("qwen3-235b-a22b", 16, 32768, 4096, 1536),
    ("qwen3-235b-a22b", 8, 32768, 4096, 1536), ("deepseek-v3", 4, 32768, 7168, 2048),
    ("deepseek-v3", 8, 32768, 7168, 2048), ("deepseek-v3", 32, 32768, 7168, 2048),
    ("gpt-oss-120b", 2, 16384, 2880, 2880),
]  # fmt: skip
# name, hidden, heads, kv heads, head dim, ffn, gated, sequence, samples: of a chip of TP
LAYERS = [
    ("gpt-1b", 2048, 16, 16, 128, 8192, False, 2048, 8), ("gpt-7b", 4096, 32, 32, 128, 16384, False, 2048, 4),
    ("llama-8b", 4096, 32, 8, 128, 14336, True, 8192, 1), ("gpt-22b tp8", 6144, 8, 8, 96, 3072, False, 2048, 4),
    ("gpt-30b", 7168, 56, 56, 128, 28672, False, 2048, 2), ("gpt-70b", 8192, 64, 64, 128, 32768, False, 2048, 2),
    ("gpt-175b tp8", 12288, 12, 12, 128, 6144, False, 2048, 1),
    ("gpt-175b tp4", 12288, 24, 24, 128, 12288, False, 2048, 2),
    ("llama-70b tp8", 8192, 8, 1, 128, 3584, True, 8192, 1), ("llama-70b tp4", 8192, 16, 2, 128, 7168, True, 8192, 1),
    ("llama-70b tp2", 8192, 32, 4, 128, 14336, True, 8192, 1), ("llama-70b tp4", 8192, 16, 2, 128, 7168, True, 4096, 1),
    ("llama-8b", 4096, 32, 8, 128, 14336, True, 2048, 4),
]  # fmt: skip
BETWEEN_PRODUCTS = {
    "layer_norm", "rms_norm", "gelu", "swiglu", "bias_dropout_add", "add", "softmax",
}  # fmt: skip
TINY = 64  # of every size, where there is no GPU: only the program is tried


def small(bench: Bench, *sizes: int) -> tuple[int, ...]:
    return sizes if bench.real else tuple(min(TINY, size) for size in sizes)


def products(bench: Bench, left: Callable[[], bool], regime: str) -> None:
    """Products of 16 bits with weights: forward, gradient of inputs, gradient of weights; in bursts every second."""
    for at, (n, k) in enumerate(WEIGHTS):
        wide = n > 40000
        for tokens in (4096,) if wide else (2048, 8192) if at % 2 else (4096, 16384):
            for layout in ("forward", "inputs", "weights"):
                if not left():
                    return
                if (regime == "burst" and layout != "forward") or (regime == "mixed" and tokens < 8192 and not wide):
                    continue
                with bench.kept(f"product {tokens} {n} {k} {layout}"):
                    product(bench, *small(bench, tokens, n, k), layout, regime)
    for size in (512, 1024, 2048, 4096, 8192, 16384):
        with bench.kept(f"product {size}"):
            product(bench, *small(bench, size, size, size), "forward", regime)


def product(bench: Bench, tokens: int, n: int, k: int, layout: str, regime: str) -> None:
    moved = 2.0 * (tokens * n + n * k + tokens * k)
    sets = [(bench.random(tokens, k), bench.random(n, k), bench.random(tokens, n)) for _ in range(turns(moved))]

    def call(i: int) -> None:
        x, w, y = sets[i % len(sets)]
        if layout == "forward":
            torch.mm(x, w.t(), out=y)
        elif layout == "inputs":
            torch.mm(y, w, out=x)
        else:
            torch.mm(y.t(), x, out=w)

    flop = 2.0 * tokens * n * k
    # as rows, columns, contraction
    sizes = {"forward": (tokens, n, k), "inputs": (tokens, k, n), "weights": (n, k, tokens)}[layout]
    count = math.ceil(max(4, min(200, 0.002 / (flop / 6e14 + 4e-6))) / len(sets)) * len(sets)
    told = bench.timed(bench.replayed(call, count), regime, count)
    write(bench, "bfloat16", sizes, layout, told)


def write(bench: Bench, dtype: str, sizes: tuple[int, int, int], layout: str, told: dict[str, Any]) -> None:
    m, n, k = sizes
    rate = 2.0 * m * n * k / told["latency_ms"] / 1e9
    bench.row("gemm", gemm_dtype=dtype, m=m, n=n, k=k, layout=layout, TFLOPs=rate, **told)


def eight(bench: Bench, left: Callable[[], bool], regime: str) -> None:
    """Products of 8 bits: one scale for all, and one for each row and column."""
    for n, k in EIGHT:
        for tokens in (4096, 16384):
            for scale in ("tensor", "row") if tokens == 16384 and regime == "sustained" else ("tensor",):
                if not left():
                    return
                with bench.kept(f"fp8 {tokens} {n} {k} {scale}"):
                    one_of_eight(bench, *small(bench, tokens, n, k), scale, regime)


def one_of_eight(bench: Bench, tokens: int, n: int, k: int, scale: str, regime: str) -> None:
    kind = torch.float8_e4m3fn
    sets = [
        (bench.random(tokens, k, dtype=kind), bench.random(n, k, dtype=kind))
        for _ in range(turns(tokens * k + n * k + 2.0 * tokens * n))
    ]
    shapes = ((1,), (1,)) if scale == "tensor" else ((tokens, 1), (1, n))
    a, b = (torch.ones(shape, device=bench.device) for shape in shapes)
    if scale == "tensor":
        a, b = a.reshape(()), b.reshape(())

    def call(i: int) -> None:
        x, w = sets[i % len(sets)]
        torch._scaled_mm(x, w.t(), a, b, out_dtype=torch.bfloat16, use_fast_accum=True)

    told = bench.timed(bench.replayed(call, 2 * len(sets)), regime, 2 * len(sets))
    write(bench, "fp8" if scale == "tensor" else "fp8 rowwise", (tokens, n, k), "forward", told)


def attention(bench: Bench, left: Callable[[], bool], regime: str) -> None:
    """Attention at once, forward and backward, of the libraries that are there; FLOP are what a mask leaves."""
    cases = [
        (max(1, 16384 // seq), 2048 // dim, 2048 // dim, seq, dim, causal, library)
        for seq in (2048, 8192, 1024, 4096, 16384, 32768)
        for dim in (128, 64)
        for causal in (True, False)
        for library in ("flash", "cudnn")
        if causal or (seq in (2048, 8192) and dim == 128)
    ]
    cases += [(1, 12, 12, 2048, 128, True, lib) for lib in ("flash", "cudnn")]  # few heads: TP 8
    cases += [(1, 8, 1, 8192, 128, True, lib) for lib in ("flash", "cudnn")]
    cases += [(1, 32, 8, 8192, 128, True, lib) for lib in ("flash", "cudnn")]
    cases += [(4, 8, 8, 2048, 96, True, "flash")]
    for batch, heads, shared, seq, dim, causal, library in cases:
        if not left():
            return
        if regime == "burst" and (dim != 128 or not causal or heads != 16):
            continue
        with bench.kept(f"attention {batch} {heads} {seq} {dim} {causal} {library}"):
            seq_, dim_ = small(bench, seq, dim)
            q, out = bench.random(batch, heads, seq_, dim_), bench.random(batch, heads, seq_, dim_)
            k, v = (bench.random(batch, shared, seq_, dim_) for _ in range(2))
            kinds = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
            for one in (q, k, v):
                one.requires_grad_(True)
            with sdpa_kernel(kinds[library] if bench.real else SDPBackend.MATH):

                def forward(_: int) -> Any:
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != shared)

                y = forward(0)
                for way, call, passes in (
                    ("forward", forward, 2),
                    ("backward", lambda _: torch.autograd.grad(y, (q, k, v), out, retain_graph=True), 5),
                ):
                    flop = passes * 2.0 * batch * heads * seq_ * seq_ * dim_ / (2 if causal else 1)
                    told = bench.timed(call, regime)
                    bench.row(
                        f"attention_{library}", library=library, batch=batch, heads=heads, kv_heads=shared, seq=seq_,
                        head_dim=dim_, causal=causal, way=way, TFLOPs=flop / told["latency_ms"] / 1e9, **told,
                    )  # fmt: skip


def moved(
    bench: Bench, kernel: str, how: str, shape: str, size: float, call: Callable[[int], Any], regime: str
) -> None:
    """A row of a kernel that memory bounds."""
    told = bench.timed(call, regime)
    of_a_layer = kernel.removesuffix(" backward") in BETWEEN_PRODUCTS
    bench.row(
        f"memory_{how}" if of_a_layer else "moves",
        kernel=kernel,
        how=how,
        shape=shape,
        bytes=size,
        GBps=size / told["latency_ms"] / 1e6,
        **told,
    )


def of_layers(bench: Bench, tokens: int, width: int) -> dict[str, tuple[Callable[..., Any], list[Any], float, float]]:
    """Kernels between products: the function, its inputs, and bytes of elements that pass forward and backward."""
    x, g = bench.random(tokens, width), bench.random(width)
    size, wide = 2.0 * tokens * width, bench.random(tokens, 2 * width)
    return {
        "layer_norm": (lambda x, g, b: F.layer_norm(x, (width,), g, b), [x, g, g.clone()], 2 * size, 3 * size),
        "rms_norm": (lambda x, g: F.rms_norm(x, (width,), g, 1e-5), [x, g], 2 * size, 3 * size),
        "gelu": (lambda x: F.gelu(x, approximate="tanh"), [x], 2 * size, 3 * size),
        "swiglu": (lambda w: F.silu(w[:, :width]) * w[:, width:], [wide], 3 * size, 5 * size),
        "bias_dropout_add": (
            lambda x, b, r: r + F.dropout(x + b, 0.1), [x, g, bench.random(tokens, width)], 3.5 * size, 2.5 * size,
        ),
        "add": (lambda x, y: x + y, [x, bench.random(tokens, width)], 3 * size, 0.0),
        "softmax": (lambda x: F.softmax(x, -1), [x], 2 * size, 3 * size),
    }  # fmt: skip


def memory(bench: Bench, left: Callable[[], bool], regime: str, compiled: bool) -> None:
    """Kernels that memory bounds, of eager PyTorch or compiled."""
    how = "compiled" if compiled else "eager"
    shapes = ((8192, 8192), (2048, 4096)) if compiled else ((2048, 4096), (4096, 8192), (8192, 12288), (512, 4096))
    for tokens, width in shapes:
        tokens, width = small(bench, tokens, width)
        for name, (function, inputs, there, back) in of_layers(bench, tokens, width).items():
            if not left():
                return
            with bench.kept(f"{name} {tokens} {width} {how}"):
                run = torch.compile(function, dynamic=False) if compiled and bench.real else function
                many = turns(there, 4)
                sets = [[one.clone().requires_grad_(True) for one in inputs] for _ in range(many)]
                outs = [run(*one) for one in sets]
                grad = bench.random(*outs[0].shape)
                shape = f"{tokens}x{width}"
                moved(bench, name, how, shape, there, lambda i: run(*sets[i % many]), regime)
                if back:
                    moved(bench, f"{name} backward", how, shape, back, lambda i: torch.autograd.grad(
                        outs[i % many], sets[i % many], grad, retain_graph=True), regime)  # fmt: skip
    for tokens, vocab in ((4096, 50304), (4096, 128256))[: 1 if compiled else 2]:
        tokens, vocab = small(bench, tokens, vocab)
        if not left():
            return
        with bench.kept(f"cross_entropy {how}"):
            logits = bench.random(tokens, vocab).requires_grad_(True)
            wanted = torch.randint(vocab, (tokens,), device=bench.device)
            loss = lambda x, y: F.cross_entropy(x.float(), y)  # noqa: E731
            run = torch.compile(loss, dynamic=False) if compiled and bench.real else loss
            size, out, shape = 2.0 * tokens * vocab, run(logits, wanted), f"{tokens}x{vocab}"
            moved(bench, "cross_entropy", how, shape, size, lambda _: run(logits, wanted), regime)
            moved(bench, "cross_entropy backward", how, shape, 2 * size,
                  lambda _: torch.autograd.grad(out, logits, retain_graph=True), regime)  # fmt: skip


def moves(bench: Bench, left: Callable[[], bool], regime: str) -> None:
    """Copies, sums of gradients, casts, Adam's step, and what moves tokens to embeddings and experts."""
    for size in (2**20, 2**22, 2**24, 2**26, 2**28, 2**30, 2**32):
        with bench.kept(f"copy {size}"):
            many = turns(size)
            (count,) = small(bench, size // 2)
            sets = [(bench.random(count), bench.random(count)) for _ in range(many)]
            moved(
                bench,
                "copy",
                "eager",
                str(size),
                2.0 * size,
                lambda i: sets[i % many][0].copy_(sets[i % many][1]),
                regime,
            )
    for count in (2**24, 2**27, 2**29):
        (count,) = small(bench, count)
        with bench.kept(f"gradients {count}"):
            held, more = torch.randn(count, device=bench.device), bench.random(count)
            moved(bench, "add to fp32", "eager", str(count), 10.0 * count, lambda _: held.add_(more), regime)
            moved(bench, "to fp8", "eager", str(count), 3.0 * count, lambda _: more.to(torch.float8_e4m3fn), regime)
            moved(bench, "largest", "eager", str(count), 2.0 * count, lambda _: more.abs().max(), regime)
            one = torch.nn.Parameter(held)
            one.grad = torch.randn(count, device=bench.device)
            adam = torch.optim.Adam([one], lr=1e-4, fused=True)
            moved(bench, "adam", "eager", str(count), 28.0 * count, lambda _: adam.step(), regime)
            several = torch.optim.AdamW([one], lr=1e-4, foreach=False, fused=False)
            moved(bench, "adam in several kernels", "eager", str(count), 28.0 * count, lambda _: several.step(), regime)
    for tokens, hidden, vocab in ((8192, 4096, 128256), (16384, 2048, 50304)):
        tokens, hidden, vocab = small(bench, tokens, hidden, vocab)
        with bench.kept("embedding"):
            table = bench.random(vocab, hidden).requires_grad_(True)
            ids = torch.randint(vocab, (tokens,), device=bench.device)
            out, grad = F.embedding(ids, table), bench.random(tokens, hidden)
            shape = f"{tokens}x{hidden}x{vocab}"
            moved(bench, "embedding", "eager", shape, 4.0 * tokens * hidden, lambda _: F.embedding(ids, table), regime)
            moved(bench, "embedding backward", "eager", shape, 2.0 * (vocab + tokens) * hidden,
                  lambda _: torch.autograd.grad(out, table, grad, retain_graph=True), regime)  # fmt: skip
    for tokens, hidden, chosen, experts in ((8192, 4096, 2, 8), (4096, 2048, 8, 128), (4096, 7168, 8, 256)):
        if not left():
            return
        tokens, hidden = small(bench, tokens, hidden)
        with bench.kept("tokens"):
            x, shape = bench.random(tokens, hidden), f"{tokens}x{hidden}x{chosen}of{experts}"
            scores = bench.random(tokens, experts)
            ids = scores.topk(chosen, dim=-1).indices.flatten()
            order = ids.argsort(stable=True)
            source, back = order // chosen, order.argsort()
            y, weights = x[source], torch.rand(tokens, chosen, 1, device=bench.device, dtype=torch.bfloat16)
            by_row = weights.flatten()[order][:, None]
            rows = 2.0 * tokens * chosen * hidden
            once = 2.0 * tokens * hidden
            cases: dict[str, tuple[float, Callable[[int], Any]]] = {
                "permute": (2 * rows, lambda _: x.index_select(0, source)),
                "unpermute by index_add": (rows + once, lambda _: torch.zeros_like(
                    x).index_add_(0, source, y * by_row)),
                "unpermute by gather": (rows + once, lambda _: (
                    y.index_select(0, back).view(tokens, chosen, hidden) * weights).sum(1)),
                "sort": (16.0 * tokens * chosen, lambda _: ids.argsort(stable=True)),
                "router": (2.0 * tokens * experts, lambda _: scores.float().softmax(-1).topk(chosen, dim=-1)),
            }  # fmt: skip
            for name, (size, call) in cases.items():
                moved(bench, name, "eager", shape, size, call, regime)


def grouped(bench: Bench, left: Callable[[], bool], regime: str) -> None:
    """Products of experts in one kernel: forward, gradients of inputs and of weights; of 8 bits forward."""
    for name, experts, rows, hidden, ffn in EXPERTS:
        for n, k in ((2 * ffn, hidden), (hidden, ffn)):
            for loads in ("balanced", "random"):
                if not left():
                    return
                if loads == "random" and (n != hidden or experts == 1 or regime == "burst"):
                    continue
                with bench.kept(f"experts {name} {experts} {n} {k}"):
                    of_experts(bench, name, experts, *small(bench, rows, n, k), loads, regime)


def of_experts(bench: Bench, name: str, experts: int, rows: int, n: int, k: int, loads: str, regime: str) -> None:
    if loads == "balanced":
        counts = torch.full((experts,), rows // experts)
    else:
        counts = torch.bincount(torch.randint(experts, (rows // 16,)), minlength=experts) * 16
    rows = int(counts.sum())
    offs = counts.cumsum(0).to(bench.device, torch.int32)
    x, w, y = bench.random(rows, k), bench.random(experts, n, k), bench.random(rows, n)

    def told(way: str, dtype: str, sizes: tuple[int, int, int], call: Callable[[int], Any]) -> None:
        with bench.kept(f"experts {name} {way} {dtype}"):
            seen = bench.timed(bench.replayed(call, 4), regime, 4)
            bench.row(
                "grouped", model=name, gemm_dtype=dtype, experts=experts, m=sizes[0], n=sizes[1], k=sizes[2], way=way,
                loads=loads, TFLOPs=2.0 * rows * n * k / seen["latency_ms"] / 1e9, **seen,
            )  # fmt: skip

    if bench.real:
        told("forward", "bfloat16", (rows, n, k), lambda _: torch._grouped_mm(x, w.transpose(1, 2), offs=offs))
        if loads == "balanced":
            told("inputs", "bfloat16", (rows, k, n), lambda _: torch._grouped_mm(y, w, offs=offs))
            told("weights", "bfloat16", (n, k, rows), lambda _: torch._grouped_mm(y.t(), x, offs=offs))
        kind = torch.float8_e4m3fn
        x8, w8 = x.to(kind), w.to(kind)
        a, b = torch.ones(rows, device=bench.device), torch.ones(experts, n, device=bench.device)
        told("forward", "fp8 rowwise", (rows, n, k), lambda _: torch._scaled_grouped_mm(
            x8, w8.transpose(1, 2), a, b, offs=offs, out_dtype=torch.bfloat16, use_fast_accum=True))  # fmt: skip
    if experts <= 16:  # one after another
        parts = [(int(at) - int(c), int(at)) for at, c in zip(counts.cumsum(0), counts, strict=True)]
        told("one by one", "bfloat16", (rows, n, k), lambda _: [
            torch.mm(x[a:b], w[e].t(), out=y[a:b]) for e, (a, b) in enumerate(parts)])  # fmt: skip


def layer(sizes: tuple[Any, ...], bench: Bench) -> tuple[Callable[..., Any], list[Any], Any]:
    """A transformer's layer as a chip has it: its function, parameters, and an input."""
    _, hidden, heads, shared, dim, ffn, gated, seq, samples = sizes
    if not bench.real:
        hidden, ffn, seq, samples = TINY, TINY, TINY, 1
    width = (heads + 2 * shared) * dim

    def of(*shape: int) -> Any:
        return (bench.random(*shape) / math.sqrt(shape[-1])).requires_grad_(True)

    params = [of(hidden), of(hidden), of(width, hidden), of(hidden, heads * dim), of((1 + gated) * ffn, hidden),
              of(hidden, ffn)]  # fmt: skip
    if not gated:
        params += [of(hidden), of(hidden), of(width), of(hidden), of(ffn), of(hidden)]
    turn = torch.randn(seq, dim, device=bench.device, dtype=torch.bfloat16)

    def rotary(x: Any) -> Any:
        low, high = x.chunk(2, -1)
        return x * turn + torch.cat((-high, low), -1) * turn

    def run(x: Any, n1: Any, n2: Any, wqkv: Any, wo: Any, w1: Any, w2: Any, *more: Any) -> Any:
        b1, b2, bqkv, bo, bu, bd = more or (None,) * 6
        norm = F.rms_norm(x, (hidden,), n1, 1e-5) if gated else F.layer_norm(x, (hidden,), n1, b1)
        q, k, v = F.linear(norm, wqkv, bqkv).view(samples, seq, -1, dim).transpose(1, 2).split(
            (heads, shared, shared), 1)  # fmt: skip
        if gated:
            q, k = rotary(q), rotary(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != shared)
        y = F.linear(y.transpose(1, 2).reshape(samples, seq, heads * dim), wo)
        x = x + (y if gated else F.dropout(y + bo, 0.1))
        norm = F.rms_norm(x, (hidden,), n2, 1e-5) if gated else F.layer_norm(x, (hidden,), n2, b2)
        up = F.linear(norm, w1, bu)
        up = F.silu(up[..., :ffn]) * up[..., ffn:] if gated else F.gelu(up, approximate="tanh")
        down = F.linear(up, w2)
        return x + (down if gated else F.dropout(down + bd, 0.1))

    return run, params, bench.random(samples, seq, hidden)


def part_of(kernel: str) -> str:
    """What a kernel does in a layer, by the name that its library gives it."""
    name = kernel.lower()
    if any(word in name for word in ("flash", "fmha", "sdpa", "cudnn")):
        return "attention"
    return "products" if any(word in name for word in ("gemm", "nvjet", "cutlass", "xmma", "splitk")) else "others"


def layers(bench: Bench, left: Callable[[], bool], how: str, library: str) -> None:
    """Layers forward and backward as a CUDA graph, and what their kernels take in it."""
    for sizes in LAYERS:
        if not left():
            return
        name = sizes[0]
        with bench.kept(f"layer {name} {how} {library}"):
            run, params, x = layer(sizes, bench)
            if how == "compiled" and bench.real:
                run = torch.compile(run, dynamic=False)
            x.requires_grad_(True)
            grad = bench.random(*x.shape)
            kinds = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
            with sdpa_kernel(kinds[library] if bench.real else SDPBackend.MATH):

                def step(_: int) -> Any:
                    return torch.autograd.grad(run(x, *params), [x, *params], grad)

                for _ in range(2):
                    step(0)
                replay = bench.replayed(step, 1)
            cells = dict(zip(("layer", "hidden", "heads", "kv_heads", "head_dim", "ffn", "gated", "seq", "samples"),
                             sizes, strict=True))  # fmt: skip
            for _ in range(2):  # the second is warmer
                bench.row("layers", **cells, how=how, library=library, **bench.timed(replay, "sustained"))
            if bench.real:
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
                    for _ in range(10):
                        replay(0)
                    bench.wait()
                parts: dict[str, list[float]] = {"products": [0, 0], "attention": [0, 0], "others": [0, 0]}
                for one in seen.key_averages():
                    part = parts[part_of(one.key)]
                    if one.self_device_time_total > 0:
                        part[0] += one.count / 10
                        part[1] += one.self_device_time_total / 10
                for part, (count, took) in parts.items():
                    bench.row("layer_parts", layer=name, seq=sizes[7], how=how, library=library, part=part,
                              kernels=count, us=took)  # fmt: skip


def trace(bench: Bench, seconds: float) -> None:
    """A chip that warms up: products of 8192 back to back, every tenth of a second."""
    replay = bench.replayed(lambda _: bench.heat(), 10)
    replay(0)
    bench.wait()
    time.sleep(1.0 if bench.real else 0)
    begin = time.perf_counter()
    size = bench.heavy[0].shape[0]
    while (now := time.perf_counter()) - begin < seconds:
        took = bench.span(replay, 8 if bench.real else 1) / (80 if bench.real else 10)
        mhz, watts = bench.meter.between(now, time.perf_counter()) if bench.meter else (0.0, 0.0)
        bench.row("trace", at_s=now - begin, TFLOPs=2.0 * size**3 / took / 1e12, sm_mhz=round(mhz), watts=round(watts))


def launches(bench: Bench) -> dict[str, float]:
    """Microseconds of a kernel that does nothing: launched by Python, in a graph, and timed between events."""
    one = torch.zeros(1, device=bench.device)
    found = {"eager_us": bench.span(lambda _: one.add_(1.0), 5000) / 5000 * 1e6}
    replay = bench.replayed(lambda _: one.add_(1.0), 1000)
    replay(0)
    found["graph_us"] = bench.span(replay, 5) / 5000 * 1e6
    found["replay_of_one_us"] = bench.span(bench.replayed(lambda _: one.add_(1.0), 1), 2000) / 2000 * 1e6
    if bench.real:
        gaps = []
        for _ in range(40):
            bench.heat()
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            last.record()
            gaps.append((first, last))
        bench.wait()
        found["events_us"] = sorted(a.elapsed_time(b) for a, b in gaps)[20] * 1e3
        bench.gap = found["events_us"] / 1e3
    return found


def told_of(bench: Bench) -> dict[str, Any]:
    """The device, its driver and libraries, as they say."""
    said = {"torch": torch.__version__, "cuda": torch.version.cuda, "system": bench.system}
    if bench.real:
        said |= {"device": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version()}
        asked = "name,driver_version,power.limit,clocks.max.sm,clocks.max.mem,temperature.gpu,ecc.mode.current"
        with suppress(Exception):
            done = subprocess.run(
                ["nvidia-smi", f"--query-gpu={asked}", "--format=csv"], capture_output=True, text=True
            )
            said["nvidia_smi"] = done.stdout.strip().splitlines()
    return said


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seconds", type=float, default=500.0, help="for all of it")
    parser.add_argument("--only", nargs="+", metavar="SECTION", help="of the sections that are told as they begin")
    parser.add_argument("--system", default="h100_sxm", help="what rows call the system")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: tiny sizes, to try the program")
    asked = parser.parse_args(words)
    if torch is None:
        print("error: found no PyTorch; install torch to measure a chip", file=sys.stderr)
        return 2
    if asked.device == "cuda" and not torch.cuda.is_available():
        print("error: PyTorch found no CUDA device; run on a machine with a GPU", file=sys.stderr)
        return 2
    asked.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    with suppress(Exception):
        import_module("torch._functorch.config").donated_buffer = False  # backward passes are repeated
        import_module("torch._dynamo.config").recompile_limit = 64
    bench = Bench(asked.out, asked.device, asked.seconds, asked.system)
    info = told_of(bench) | {"launches": launches(bench), "sections": {}}
    # name, share of the time at most, and what it does
    sections: Iterable[tuple[str, float, Callable[[Callable[[], bool]], None]]] = (
        ("products-burst", 0.05, lambda left: products(bench, left, "burst")),
        ("eight-burst", 0.02, lambda left: eight(bench, left, "burst")),
        ("attention-burst", 0.04, lambda left: attention(bench, left, "burst")),
        ("moves-burst", 0.03, lambda left: moves(bench, left, "burst")),
        ("trace", 0.05, lambda _: trace(bench, 20.0 if bench.real else 0.1)),
        ("products", 0.25, lambda left: products(bench, left, "sustained")),
        ("products-mixed", 0.15, lambda left: products(bench, left, "mixed")),
        ("layers", 0.10, lambda left: layers(bench, left, "eager", "flash")),
        ("attention", 0.14, lambda left: attention(bench, left, "sustained")),
        ("memory", 0.06, lambda left: memory(bench, left, "beside", compiled=False)),
        ("moves", 0.05, lambda left: moves(bench, left, "beside")),
        ("grouped", 0.14, lambda left: grouped(bench, left, "sustained")),
        ("eight", 0.06, lambda left: eight(bench, left, "sustained")),
        ("layers-cudnn", 0.06, lambda left: layers(bench, left, "eager", "cudnn")),
        ("memory-compiled", 0.10, lambda left: memory(bench, left, "beside", compiled=True)),
        ("layers-compiled", 0.20, lambda left: layers(bench, left, "compiled", "cudnn")),
    )
    for name, part, section in sections:
        if asked.only and name not in asked.only:
            continue
        begin = time.perf_counter()
        until = min(bench.end, begin + part * asked.seconds)
        print(f"{begin - bench.start:6.1f} s: {name}", flush=True)
        with bench.kept(name):
            section(lambda until=until: time.perf_counter() < until)
        info["sections"][name] = round(time.perf_counter() - begin, 1)
        (asked.out / "info.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
        if bench.real:
            torch.cuda.empty_cache()
    print(f"{time.perf_counter() - bench.start:6.1f} s: done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
