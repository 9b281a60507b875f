"""How one GPU is timed: alone after a pause, back to back, or beside products, with its clock and power."""

from __future__ import annotations

import csv
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import torch
except ImportError:
    torch = None

LEAD, TIMED, PAUSE = 0.1, 0.25, 0.08  # seconds
TOUCHED = 150e6  # bytes of all buffers that take turns: more than a cache has

Call = Callable[[int], Any]
Row = dict[str, Any]


class Meter:
    """Clock and power, sampled by a thread."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float, float]] = []
        self.read: Callable[[], tuple[float, float]] | None = None
        with suppress(Exception):
            import pynvml as nvml

            nvml.nvmlInit()
            chip = nvml.nvmlDeviceGetHandleByIndex(0)

            def read() -> tuple[float, float]:
                watts = nvml.nvmlDeviceGetPowerUsage(chip) / 1e3
                with suppress(Exception):  # of this moment, where the driver has it; else a mean of a second
                    watts = nvml.nvmlDeviceGetFieldValues(chip, [186])[0].value.uiVal / 1e3
                return float(nvml.nvmlDeviceGetClockInfo(chip, nvml.NVML_CLOCK_SM)), watts

            read()
            self.read = read
            threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        while self.read is not None:
            with suppress(Exception):
                self.samples.append((time.perf_counter(), *self.read()))
            time.sleep(0.01)

    def between(self, start: float, end: float) -> tuple[float, float]:
        """Mean MHz and W; those of the last sample where none fell between."""
        mine = [s for s in self.samples[-20000:] if start <= s[0] <= end] or self.samples[-1:]
        if not mine:
            return 0.0, 0.0
        return sum(s[1] for s in mine) / len(mine), sum(s[2] for s in mine) / len(mine)


class Bench:
    """A device, its meter, the tables, and how long there is."""

    def __init__(self, folder: Path, device: str, seconds: float, system: str) -> None:
        self.folder, self.device, self.real, self.system = folder, device, device == "cuda", system
        self.start = time.perf_counter()
        self.end = self.start + seconds
        self.meter = Meter() if self.real else None
        self.files: dict[str, Any] = {}
        self.version = f"{torch.__version__}"
        self.gap = 0.0
        self.side = torch.cuda.Stream() if self.real else None
        n = 8192 if self.real else 64
        self.heavy = [self.random(n, n) for _ in range(3)]

    def random(self, *shape: int, dtype: Any = None) -> Any:
        made = torch.randn(*shape, device=self.device, dtype=torch.bfloat16)
        return made if dtype is None else made.to(dtype)

    def heat(self) -> None:
        torch.mm(self.heavy[0], self.heavy[1], out=self.heavy[2])

    def wait(self) -> None:
        if self.real:
            torch.cuda.synchronize()

    def row(self, table: str, **cells: Any) -> None:
        """Write a row, and keep it."""
        row = {"system": self.system, "framework": "PyTorch", "version": self.version, **cells}
        if table not in self.files:
            out = (self.folder / f"{table}.csv").open("w", encoding="utf-8", newline="")
            self.files[table] = out, csv.DictWriter(out, list(row), extrasaction="ignore", lineterminator="\n")
            self.files[table][1].writeheader()
        out, writer = self.files[table]
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
        out.flush()

    @contextmanager
    def kept(self, what: str) -> Iterator[None]:
        """One measurement; one that fails is told and left out."""
        try:
            yield
        except Exception as why:
            print(f"left out: {what}: {type(why).__name__}: {str(why)[:200]}", flush=True)
        finally:
            if self.real:
                with suppress(Exception):
                    torch.cuda.synchronize()

    def span(self, call: Call, count: int) -> float:
        """Seconds of so many calls, one after another."""
        if not self.real:
            begin = time.perf_counter()
            for i in range(count):
                call(i)
            return time.perf_counter() - begin
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for i in range(count):
            call(i)
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3

    def timed(self, call: Call, regime: str, per: int = 1) -> Row:
        """Seconds of a call (of one of ``per`` that it makes), with clock and power."""
        call(0)
        self.wait()
        one = max(self.span(call, 3) / 3, 1e-6)
        if regime in ("beside", "mixed"):
            return self._in_turn(call, one, per, regime)
        if regime == "burst":
            time.sleep(PAUSE if self.real else 0)
            self.span(call, max(2, math.ceil(0.002 / one)))
            begin = time.perf_counter()
            count = max(3, math.ceil(0.006 / one))
            seconds = self.span(call, count) / count
        else:
            self.span(call, max(1, math.ceil(LEAD / one)) if self.real else 1)
            begin = time.perf_counter()
            count = max(3, math.ceil(TIMED / one)) if self.real else 2
            seconds = self.span(call, count) / count
        return self._told(regime, seconds / per, begin)

    def _told(self, regime: str, seconds: float, begin: float) -> Row:
        mhz, watts = self.meter.between(begin, time.perf_counter()) if self.meter else (0.0, 0.0)
        return {"regime": regime, "latency_ms": seconds * 1e3, "sm_mhz": round(mhz), "watts": round(watts)}

    def _in_turn(self, call: Call, one: float, per: int, regime: str) -> Row:
        """Median of some calls between other work: ``beside`` a product, ``mixed`` with 1 ms of sums of tensors."""
        calls = max(1, min(16, math.ceil(0.0004 / one)))
        rounds = max(12, min(120, int((0.15 if regime == "beside" else TIMED) / (0.002 + calls * one))))
        lead, pairs, begin = rounds // 3, [], time.perf_counter()
        for turn in range(rounds + lead if self.real else 5):
            if regime == "beside":
                self.heat()
            else:
                for _ in range(7):
                    torch.add(self.heavy[0], self.heavy[1], out=self.heavy[2])
            if turn == lead:
                begin = time.perf_counter()
            if self.real:
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                for i in range(calls):
                    call(turn * calls + i)
                last.record()
                pairs.append((first, last))
            else:
                call(turn)
        self.wait()
        found = sorted(first.elapsed_time(last) for first, last in pairs[lead:]) or [1.0]
        each = (found[len(found) // 2] - self.gap) / calls / per
        return self._told(regime, each / 1e3, begin)

    def replayed(self, call: Call, count: int) -> Callable[[int], Any]:
        """So many calls as one CUDA graph, so that launching them takes no time of their own."""
        if not self.real:
            return lambda _: [call(i) for i in range(count)]
        side = self.side
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for i in range(2):
                call(i)
        torch.cuda.current_stream().wait_stream(side)
        self.wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(count):
                call(i)
        return lambda _: graph.replay()


def turns(size: float, most: int = 8) -> int:
    return max(1, min(most, math.ceil(TOUCHED / size)))
