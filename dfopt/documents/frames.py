"""A result as objects of pandas: figures of an answer in a series, its partitions, memory and plans in tables."""

from __future__ import annotations

from typing import Any

from dfopt.documents.evaluation import asked
from dfopt.documents.metrics import METRICS

_TIMES = "compute_s", "memory_s", "network_s"


class Frames:
    """Pandas views of a result."""

    def summary(self: Any) -> Any:
        """A :class:`pandas.Series` with the question and the figures of the answer.

        Times are in seconds, memory in bytes of the fullest chip; ``gap``, ``utilization`` and
        ``model_flop_utilization`` are shares. With a stack of dies the speed is the one that the stack keeps up.

        Examples
        --------
        >>> import dfopt as df
        >>> df.solve("gpt2-small", "sn10-8-ring", tp=8).summary()[["graph", "system", "chips", "status"]].tolist()
        ['gpt2-small', 'sn10-8-ring', 8, 'optimal']
        """
        import pandas as pd

        keeps, chips, fastest = self.score.sustained, self.system.chips, self.system.chip.fastest_tier
        figures = [name for name, metric in METRICS.items() if metric.headline]
        row = {"graph": self.graph.name, "system": self.system.name, "chips": chips, **asked(self.graph)}
        row |= {"plan": self.plan.label} | {name: getattr(keeps, name) for name in figures}
        row |= {"tokens_per_s_per_chip": keeps.tokens_per_s / chips, "bound_by": keeps.bound_by}
        row |= {"memory_bytes": max(stage.held_in(fastest) for stage in keeps.stages)}
        row |= {"efficiency": self.assumptions.profile, "status": self.status, "gap": self.gap, "solve_s": self.seconds}
        return pd.Series(row, name=f"{self.graph.name} on {self.system.name}", dtype=object)

    def frame(self: Any) -> Any:
        """A :class:`pandas.DataFrame` with one row per kernel, in graph order.

        ``kernel``; where it runs: ``stage``, ``partition``, ``sharding``, compute ``tiles``; and of its whole
        partition, for one layer and one microbatch on one chip: ``partition_compute_s``, ``partition_memory_s``,
        ``partition_network_s``, ``partition_time_s`` (seconds) and ``bound_by``; with a limited bandwidth of SRAM also
        ``partition_sram_s``.

        Examples
        --------
        >>> import dfopt as df
        >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
        >>> result.frame()[["kernel", "partition", "sharding", "tiles"]].iloc[0].to_dict()
        {'kernel': 'Add_Prev_Layer', 'partition': 0, 'sharding': 'none', 'tiles': 1}
        """
        import pandas as pd

        where = {(part.stage, part.partition): part for part in self.score.partitions}
        times = (*_TIMES, *(() if self.score.sram_share is None else ("sram_s",)), "time_s")
        rows = (
            {"kernel": kernel.name}
            | {name: getattr(kernel, name) for name in ("stage", "partition", "sharding", "tiles")}
            | {f"partition_{name}": getattr(part, name) for name in times}
            | {"bound_by": part.bound_by}
            for kernel in self.mapping.kernels
            for part in (where[kernel.stage, kernel.partition],)
        )
        return pd.DataFrame(rows)

    @property
    def partitions(self: Any) -> Any:
        """A :class:`pandas.DataFrame` with a row for each partition: kernels, bytes, seconds of one layer."""
        import pandas as pd

        times = (*_TIMES, *(() if self.score.sram_share is None else ("sram_s",)), "time_s", "bound_by", "dram_bytes")
        rows = (
            {"stage": part.stage, "partition": part.partition, "kernels": ", ".join(part.kernels)}
            | {name: getattr(part, name) for name in times}
            for part in self.score.partitions
        )
        return pd.DataFrame(rows).set_index(["stage", "partition"])

    @property
    def memory(self: Any) -> Any:
        """A :class:`pandas.DataFrame` of bytes on one chip: a row for each stage and memory, a column for each use."""
        import pandas as pd

        rows = {(s.stage, name): parts for s in self.score.stages for name, parts in s.states.items()}
        if len(self.system.chip.tiers) == 1:
            rows = {(stage, "dram"): held.parts for stage, held in enumerate(self.score.memory)}
        return pd.DataFrame.from_dict(rows, orient="index").fillna(0.0).rename_axis(index=["stage", "memory"])

    @property
    def breakdown(self: Any) -> Any:
        """A :class:`pandas.Series` of the seconds of a step by part; they add up to ``step_time_s``."""
        import pandas as pd

        return pd.Series(self.score.breakdown.parts, name="seconds", dtype=float)

    @property
    def plans_frame(self: Any) -> Any:
        """A :class:`pandas.DataFrame` with one row for each recorded plan: status, bound and value in seconds."""
        import pandas as pd

        names = ("status", "bound", "value", "gap", "variant", "note")
        return pd.DataFrame({"plan": each.plan.label} | {n: getattr(each, n) for n in names} for each in self.plans)
