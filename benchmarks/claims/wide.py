"""Claims about experts over many chips, asked as users ask: no degree given, on the command line, by the clock."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from claims.rows import Asked, Ran, Row, run

MODEL, DECODE = "deepseek-v3", ["--phase", "decode", "--context", "4096"]  # weights in fp8, as its config says
LIMIT, GAP = 30.0, 0.01
START = 5.0  # seconds beside the limit: to load, to look for the largest batch, and to judge
PIPELINES = "16"  # of DeepSeek-V3's training: arXiv 2412.19437, 3.2
UNLIMITED = {"chip.dram.capacity": None}


class Answer(NamedTuple):
    """What a solve printed, and the plan and the gap of its result, if there is one."""

    ran: Ran
    result: dict[str, Any]

    @property
    def seen(self) -> str:
        """All of it in words."""
        largest = "".join(f"{line.split(':')[0]}: " for line in self.ran.err.splitlines() if "largest that" in line)
        if not self.result:
            lines = [line for line in self.ran.err.splitlines() if line.startswith(("dfopt:", "least DRAM", "nearest"))]
            ended = "ended" if self.ran.code is None else f"exit code {self.ran.code}"
            return f"{largest}{ended} {self._after}: {' '.join(lines)}"
        schemes = ", ".join(f"{module} {scheme}" for module, scheme in self.plan["modules"].items())
        degrees = " ".join(f"{axis.upper()}{self.plan[axis]}" for axis in ("tp", "mp", "pp", "dp"))
        step = f"{self.result['value']:.5g} s a step, {self.result['score']['tokens_per_s']:.4g} tokens/s"
        return f"{largest}{degrees} [{schemes}], {step}, gap {self.result['gap']:.2%} {self._after}"

    @property
    def _after(self) -> str:
        return f"after {self.ran.seconds:.1f} s ({self.ran.processor:.1f} s of the processor)"

    @property
    def plan(self) -> dict[str, Any]:
        """Its degrees, and the schemes of modules."""
        plan: dict[str, Any] = self.result["mapping"]["plan"]
        return {"mp": 1, **plan, "modules": plan.get("modules") or {}}

    @property
    def wide(self) -> bool:
        """Whether sequences and experts are shared out."""
        return self.plan["modules"].get("mixer") == "n" and self.plan["modules"].get("experts") == "outer"

    def proven(self, limit: float = LIMIT) -> bool:
        """Whether it came in time and near enough; what is printed has passed the judge, and fits."""
        return bool(self.result) and self.result["gap"] <= GAP and self.ran.seconds <= limit + START


def asked_of(system: str, *words: str, limit: float = LIMIT) -> Answer:
    """Solve on the command line."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        more = ["--time-limit", f"{limit:g}", "--no-sensitivity", "-q", "--json", "-o", str(file)]
        more += ["--set", "memory_reserve=0"]
        done = run(["-m", "dfopt", "solve", MODEL, system, *words, *more], limit=10 * limit)
        return Answer(done, json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {})


def _row(claim: str, system: str, words: list[str], met: bool, answer: Answer, limit: str) -> Row:
    return Row(claim, f"`dfopt solve {MODEL} {system} {' '.join(words)}`", answer.seen, limit, met)


def wide_ep(asked: Asked) -> Iterator[Row]:
    """DeepSeek-V3 on 32 H200 and 72 H100, no degree given, and pure tensor parallelism beside it."""
    near = f"gap {GAP:.0%} in {LIMIT:g} s"
    shared = f"mixer n, experts outer, {near}"
    for system, batch in (("h200-32", "2048"), ("h100-72", "2304")):
        words = [*DECODE, "--batch", batch]
        free = asked_of(system, *words)
        yield _row("wide EP, any microbatch", system, words, free.proven() and free.wide, free, shared)
        words = [*words, "--microbatch", batch]
        wide = asked_of(system, *words)
        yield _row("wide EP, decode", system, words, wide.proven() and wide.wide, wide, shared)
        pure = [*words, "--tp", "16" if system == "h200-32" else "8", "--mp", "1"]
        beside = asked_of(system, *pure)
        worse = bool(beside.result) and bool(wide.result) and beside.result["bound"] > wide.result["value"]
        told = beside.ran.code == 4 and "short by" in beside.ran.err and "caches of sequences" in beside.ran.err
        yield _row("pure TP beside it", system, pure, worse or told, beside, "slower, or infeasible with the reason")
        words = [*DECODE, "--batch", "max"]
        most = asked_of(system, *words)
        yield _row("largest batch, decode", system, words, most.proven(), most, near)
        words = ["--phase", "prefill", "--prompt", "4096", "--batch", "64", "--microbatch", "64"]
        prompts = asked_of(system, *words)
        yield _row("wide EP, prefill", system, words, prompts.proven(), prompts, near)


def wide_training(asked: Asked) -> Iterator[Row]:
    """A step of DeepSeek-V3's training on 2048 H800, DRAM without limit, pipeline stages as they were and free."""
    import dfopt as df

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "h800-2048.yaml"
        df.with_fields(df.load_system("h800-2048"), UNLIMITED).dump(file)
        for given, limit in ((["--pp", PIPELINES], 30.0), ([], 60.0)):
            layers = ["--param", "mode=training", "--param", "ends=false"]
            words = [*layers, "--batch", "15360", "--microbatch", "64", *given]
            found = asked_of(str(file), *words, limit=limit)
            said = "h800-2048, DRAM without limit:"
            met = found.proven(limit) and found.wide
            yield _row("wide EP, training", said, words, met, found, f"mixer n, experts outer, gap 1 % in {limit:g} s")
