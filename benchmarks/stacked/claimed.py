"""What is claimed of the answers to figures of DeepStack, beside what they publish; open rows are left out and counted.

A search that its time limit ended may leave a larger space of schedules below a smaller one that it holds. So what is
known of a space is the best of all that it holds, and whether searches alone keep the order is a claim of its own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from statistics import fmean
from typing import Any, Final, NamedTuple

from asked import BATCHES, CONTROLS, FIGURES, LAYERS, MENUS, ROLES, answers, rows_of
from scipy.stats import spearmanr

Curve = dict[int, float]
Regime = tuple[str, str]  # phase and batch


class Claim(NamedTuple):
    """A figure that is seen, and the limit that it has to keep; ``holds``: none while nothing is answered.

    ``rows``: how many of how many are answered.
    """

    what: str
    seen: str
    limit: str
    holds: bool | None
    rows: str = ""
    why: str = ""  # it fails

    def __str__(self) -> str:
        """The claim in a line."""
        of, why = f" ({self.rows})" * bool(self.rows), f"; {self.why}" * (self.holds is False and bool(self.why))
        said = "open" if self.holds is None else "holds" if self.holds else "FAILS"
        return f"{said}: {self.what}: {self.seen}, limit {self.limit}{of}{why}"


def tokens_of(figure: str) -> dict[tuple[str, ...], float]:
    """Tokens/s by question; 0 where no mapping fits."""
    return {key: record["tokens_per_s"] or 0.0 for key, record in answers(figure).items() if "why" not in record}


def rank(theirs: Iterable[float], ours: Iterable[float]) -> float:
    """Rank correlation; none of too few values."""
    pairs = list(zip(theirs, ours, strict=True))
    return float(spearmanr(*zip(*pairs, strict=True)).statistic) if len(pairs) > 2 else math.nan


def answered(figure: str) -> str:
    """How many rows are."""
    keys = [key for row in FIGURES[figure]() for key in row.keys]
    return f"{len(tokens_of(figure).keys() & set(keys))} of {len(keys)} rows"


def curves_16() -> dict[Regime, tuple[list[int], list[float], list[float]]]:
    """Layers, published tokens/s and ours, of every curve of which all rows are answered."""
    known, found = tokens_of("16"), defaultdict[Regime, list[tuple[int, float, float]]](list)
    for row in rows_of("fig16_throughput_vs_dram_layers"):
        layers = row["dram_layers_all_connected"]
        ours = known.get((row["phase"], row["batch"], layers), math.nan)
        found[row["phase"], row["batch"]].append((int(layers), float(row["best_scaled_tokens_per_s"]), ours))
    whole = {key: rows for key, rows in found.items() if not any(math.isnan(ours) for *_, ours in rows)}
    return {key: tuple(map(list, zip(*rows, strict=True))) for key, rows in whole.items()}  # type: ignore[misc]


def claims_16() -> Iterator[Claim]:
    """Where each curve has its peak, and how it ranks the numbers of layers."""
    curves = curves_16()
    peaks = {
        key: (at[theirs.index(max(theirs))], at[ours.index(max(ours))]) for key, (at, theirs, ours) in curves.items()
    }
    ranks = {key: rank(theirs, ours) for key, (_, theirs, ours) in curves.items()}
    for key, (theirs, ours) in peaks.items():
        print(f"{key[0]:8} batch {key[1]:>5}: best layers {theirs:2} published, {ours:2} here; ranks {ranks[key]:5.2f}")
    rows = f"{len(curves)} of 10 curves"
    near = sum(abs(theirs - ours) <= 2 for theirs, ours in peaks.values())
    yield Claim("best layers within 2", f"{near}", ">= 8 of 10", near >= min(8, len(curves)), rows)
    alike = sum(rho >= 0.8 for rho in ranks.values())
    yield Claim("rank correlation of 0.8 or more", f"{alike}", ">= 8 of 10", alike >= min(8, len(curves)), rows)
    for key, least, most in ((("decode", "4"), 8, 10), (("prefill", "1024"), 2, 4)):
        if key in peaks:
            best = peaks[key][1]
            yield Claim(f"best layers of {' '.join(key)}", f"{best}", f"{least} to {most}", least <= best <= most)


def published_16() -> dict[Regime, Curve]:
    """Published tokens/s over the number of layers in each regime."""
    found = defaultdict[Regime, Curve](dict)
    for row in rows_of("fig16_throughput_vs_dram_layers"):
        found[row["phase"], row["batch"]][int(row["dram_layers_all_connected"])] = float(
            row["best_scaled_tokens_per_s"]
        )
    return dict(found)


def claims_long_prompts() -> Iterator[Claim]:
    """Where curves of prompts of 32,768 tokens have their peaks, beside those of 1,024; the paper has none."""
    short, found = tokens_of("16"), defaultdict[Regime, Curve](dict)
    for (phase, batch, layers), tokens in tokens_of("long-prompts").items():
        found[phase, batch][int(layers)] = tokens
    for regime, curve in found.items():
        best = max(curve, key=curve.__getitem__)
        before = max(LAYERS, key=lambda at: short.get((*regime, str(at)), 0.0))
        print(" ".join(regime), *(f"{at}: {curve[at]:,.0f}" if at in curve else f"{at}: open" for at in LAYERS))
        seen, rows = f"{best} layers, {before} with prompts of 1,024", f"{len(curve)} of {len(LAYERS)} rows"
        no_more = best <= before if len(curve) == len(LAYERS) else None
        yield Claim(f"{' '.join(regime)}: long prompts need no more layers", seen, "<= those", no_more, rows)


def claims_controls() -> Iterator[Claim]:
    """Without what shapes the curves of figure 16 they do not rank the numbers of layers as the published ones do.

    Of a curve two numbers of layers may be open.
    """
    published = published_16()
    for name in CONTROLS:
        ours = defaultdict[Regime, Curve](dict)
        for (control, phase, batch, layers), tokens in tokens_of("controls").items():
            if control == name:
                ours[phase, batch][int(layers)] = tokens
        whole = {regime: curve for regime, curve in ours.items() if len(curve) >= len(LAYERS) - 2}
        ranks = {
            regime: rank([published[regime][layers] for layers in curve], [*curve.values()])
            for regime, curve in whole.items()
        }
        shown = ", ".join(f"{' '.join(regime)} {rho:.2f}" for regime, rho in ranks.items()) or "open"
        low = sum(rho < 0.8 for rho in ranks.values())
        yield Claim(f"control: {name}", shown, "below 0.8 in 3 or more", low >= 3 if len(ranks) == 3 else None)


def claims_17() -> Iterator[Claim]:
    """Fewer connected layers against all of them, and how each panel ranks its rows."""
    known, kept = answers("17"), tokens_of("17")
    panels, theirs_j, ours_j = defaultdict[Regime, list[tuple[float, float]]](list), {}, {}
    for row in rows_of("fig17_total_vs_connected_layers"):
        key = row["phase"], row["batch"], row["total_layers"], row["connected_layers"]
        if key in kept:
            panels[key[:2]].append((float(row["best_effective_tokens_per_s"]), kept[key]))
            theirs_j[key], ours_j[key] = float(row["best_tokens_per_joule"]), known[key].get("tokens_per_j", 0.0)
    ranks = {panel: rank(*zip(*rows, strict=True)) for panel, rows in panels.items()}
    for panel, rho in ranks.items():
        print(f"{' '.join(panel)}: rank correlation {rho:.2f} over {len(panels[panel])} of 27 rows")
    good = sum(rho >= 0.7 for rho in ranks.values())
    enough = good >= min(3, len(ranks)) if ranks else None
    yield Claim("panels of rank correlation 0.7", f"{good} of {len(ranks)}", ">= 3 of 4", enough, answered("17"))
    same = asked = 0
    for panel in panels:
        for total in ("4", "6", "8", "10", "12"):
            signs = [_gain(joule, (*panel, total)) for joule in (theirs_j, ours_j)]
            if None in signs or abs(signs[0] or 0.0) <= 0.02:
                continue
            asked, same = asked + 1, same + ((signs[0] or 0.0) * (signs[1] or 0.0) > 0)
            print(f"{' '.join(panel)}, {total} layers: fewer connected {signs[0]:+.1%} published, {signs[1]:+.1%} here")
    most = same >= 0.8 * asked if asked else None
    yield Claim("signs of tokens/J", f"{same} of {asked}", ">= 12 of 15", most, answered("17"))


def _gain(joule: dict[tuple[str, ...], float], at: tuple[str, ...]) -> float | None:
    """Of the best with fewer connected layers over all connected."""
    fewer = [value for key, value in joule.items() if key[:3] == at and key[3] != at[2]]
    whole = joule.get((*at, at[2]))
    return max(fewer) / whole - 1 if fewer and whole else None


def claims_20() -> Iterator[Claim]:
    """Rates of the network: means of ratios to the start over the batches that are answered."""
    theirs, ours = _published_20(), _ratios_20()
    panels = list(dict.fromkeys(key[:2] for key in ours))
    orders, losses = list[bool](), list[float]()
    for panel in panels:
        mine = [ours.get((*panel, level, 4.0, "logic")) for level in ROLES]
        if None in mine:
            continue
        yours = [theirs[(*panel, level, 4.0, "logic")] for level in ROLES]
        print(panel, "x4 on the logic die:", *(f"{a:.3f}/{b:.3f}" for a, b in zip(yours, mine, strict=True)))
        orders.append(sorted(range(3), key=yours.__getitem__) == sorted(range(3), key=lambda at: mine[at] or 0.0))
        losses += [(1 - (b or 0.0)) / (1 - a) for a, b in zip(yours, mine, strict=True)]
    rows, near = answered("20"), sum(0.5 <= one <= 2 for one in losses)
    if orders:
        ordered = f"{sum(orders)} of {len(orders)}"
        yield Claim("order of levels at x4", ordered, ">= 3 of 4", sum(orders) >= 0.75 * len(orders), rows)
        lost = f"{near} of {len(losses)}"
        yield Claim("loss at x4 within a factor 2", lost, ">= 9 of 12", near >= 0.75 * len(losses), rows)
    for what, at, holds in (
        (">= 0.95", ("L2", 0.5, "logic"), lambda ratio: ratio >= 0.95),
        ("> 1", ("L3", 1.5, "dram"), lambda ratio: ratio > 1),
        ("<= 0.55", ("L2", 4.0, "logic"), lambda ratio: ratio <= 0.55),
        (">= 0.99", ("L2", 4.0, "dram"), lambda ratio: ratio >= 0.99),
    ):
        for panel in panels:
            if (ratio := ours.get((*panel, *at))) is not None:
                name = f"{' '.join(panel)}, {at[0]} x{at[1]:g} on the {at[2]} die"
                yield Claim(name, f"{ratio:.3f} ({theirs[(*panel, *at)]:.3f} published)", what, holds(ratio))
    falls = [
        (low, high) for key, low in ours.items() for next_, high in ours.items()
        if key[4] == next_[4] == "dram" and key[:3] == next_[:3] and key[3] < next_[3] and high < low
    ]  # fmt: skip
    why = "an answer is within a gap of 2 % of the best; the next claim takes what was proven"
    yield Claim("curves of a DRAM die fall", f"{len(falls)} times", "never", not falls if ours else None, rows, why)
    known = answers("20")
    curves = [(key, record) for key, record in known.items() if key[5] == "dram" and record["tokens_per_s"]]
    above = [
        (slow, fast)
        for slow, low in curves
        for fast, high in curves
        if slow[:4] == fast[:4] and float(slow[4]) < float(fast[4])
        if low["tokens_per_s"] > high["at_most"] * (1 + 1e-9)
    ]
    none = not above if curves else None
    yield Claim("a rate of a DRAM die has more than a faster one can have", f"{len(above)} times", "never", none, rows)


def _published_20() -> dict[tuple[str, str, str, float, str], float]:
    """Ratios by phase, network, level, multiple and die."""
    columns = {"logic": "norm_tokens_per_s_logic_die_noc", "dram": "norm_tokens_per_s_noc_in_dram_die"}
    found = {}
    for row in rows_of("fig20_noc_layer_bandwidth"):
        at = row["phase"], row["baseline_noc"], row["scaled_level"], float(row["bandwidth_multiplier"])
        found |= {(*at, die): float(row[column]) for die, column in columns.items()}
    return found


def _ratios_20() -> dict[tuple[str, str, str, float, str], float]:
    kept, found = tokens_of("20"), defaultdict[tuple[str, str, str, float, str], list[float]](list)
    for (phase, batch, network, level, times, die), tokens in kept.items():
        if times != "1" and (start := kept.get((phase, batch, network, "L1", "1", "logic"))):
            found[phase, network, level, float(times), die].append(tokens / start)
    return {key: fmean(ratios) for key, ratios in found.items()}


def claims_21() -> Iterator[Claim]:
    """Three nested spaces of schedules."""
    known, ratios, worse, wrong = answers("21"), list[list[float]](), 0, 0
    published = zip(rows_of("fig21_parallelism_space"), rows_of("fig21_corrected"), strict=True)
    for submitted, corrected in published:
        key = submitted["phase"], submitted["model"], submitted["batch"]
        found = [known.get((*key, menu), {}) for menu in MENUS]
        if not all(found) or not found[0]["tokens_per_s"]:
            continue
        tokens = [one["tokens_per_s"] or 0.0 for one in found]
        worse += any(large < small for small, large in pairwise(tokens))
        limits = [one.get("at_most", math.inf) * (1 + 1e-9) for one in found]
        wrong += any(tokens[a] > limits[b] for a in range(3) for b in range(a + 1, 3))
        row = [_flexible(submitted), _flexible(corrected), max(tokens) / tokens[0]]
        ratios.append(row)
        print(*key, "flexible over ASTRA: {:.2f} submitted, {:.2f} corrected, {:.2f} here".format(*row),
              f"at most {limits[2] / tokens[0]:.2f}")  # fmt: skip
    rows = f"{len(ratios)} of 28 rows"
    yield Claim(
        "a space above what a larger one can have at most",
        f"{wrong} rows",
        "never",
        not wrong if ratios else None,
        rows,
    )
    why = "a search ends at its gap or its time limit, that of a larger space with more left to find"
    yield Claim(
        "searches find less in a larger space", f"{worse} rows", "never", not worse if ratios else None, rows, why
    )
    for name, at in (("submitted", 0), ("corrected", 1)):
        rho = rank([row[at] for row in ratios], [row[2] for row in ratios])
        yield Claim(
            f"rank correlation of flexible over ASTRA, {name}",
            f"{rho:.2f}",
            ">= 0.6",
            None if math.isnan(rho) else rho >= 0.6,
            rows,
        )


def _flexible(row: dict[str, str]) -> float:
    return float(row["module_flexible_tokens_per_s"]) / float(row["astra_space_tokens_per_s"])


def claims_table_4() -> Iterator[Claim]:
    """Seven steps from the narrowest question to the widest."""
    known = tokens_of("table-4")
    submitted, corrected = rows_of("table4_ablation"), rows_of("table4_corrected")
    for batch in ("1024", "4"):
        ours = [known.get((batch, row["step"])) for row in submitted]
        layers = [answers("table-4").get((batch, "6", str(at))) for at in LAYERS]
        ours[5] = max(one["tokens_per_s"] or 0.0 for one in layers if one) if all(layers) else None
        column = f"decode_bs{batch}_tokens_per_s"
        for row, fixed, value in zip(submitted, corrected, ours, strict=True):
            shown = "open" if value is None else f"{value:,.0f}"
            print(f"batch {batch:>4} {row['step']} {row['name']:40} {row[column]:>12} {fixed[column]:>12} {shown:>10}")
        reached = [value for value in ours if value]
        if len(reached) < 7:
            continue
        steps = [after / before for before, after in pairwise(reached)]
        whole = f"{reached[-1] / reached[0]:.2f}"
        print(f"batch {batch}: whole factor {whole}")
        if batch == "1024":
            first = f"{steps[0]:.2f}, others at most {max(steps[1:]):.2f}"
            yield Claim("first step is the largest", first, "first", steps[0] == max(steps))
            yield Claim("last step", f"{steps[-1]:.2f}", "< 1.15", steps[-1] < 1.15)
            yield Claim("whole factor", whole, "4.8 to 14.2", 4.8 <= reached[-1] / reached[0] <= 14.2)


def regrets(curves: dict[Regime, Curve]) -> dict[tuple[Regime, Regime], float]:
    """What the number of layers that is best for one regime loses in another: of its best tokens/s."""
    best = {regime: max(curve, key=curve.__getitem__) for regime, curve in curves.items()}
    return {(a, b): 1 - curves[b][best[a]] / max(curves[b].values()) for a in curves for b in curves}


def means(found: dict[tuple[Regime, Regime], float]) -> dict[str, float]:
    """Mean regrets over pairs of regimes: of one phase, of one batch, and of about as many tokens in a step."""
    kinds: dict[str, Callable[[Regime, Regime], bool]] = {
        "same phase, other batch": lambda a, b: a[0] == b[0] and a[1] != b[1],
        "same batch, other phase": lambda a, b: a[0] != b[0] and a[1] == b[1],
        "nearest tokens of a step in the other phase": lambda a, b: {a, b} == {("decode", "1024"), ("prefill", "4")},
    }
    values = {name: [loss for pair, loss in found.items() if of(*pair)] for name, of in kinds.items()}
    return {name: fmean(losses) for name, losses in values.items() if losses}


def curves_of(model: str, menu: str) -> dict[Regime, Curve]:
    """Tokens/s over the number of layers in each regime of which all are answered."""
    known = tokens_of("findings")
    if (model, menu) == ("DeepSeek-V3", "per_module"):
        known = {(model, key[0], key[1], menu, key[2]): value for key, value in tokens_of("16").items()}
    found = {
        (phase, batch): {at: known.get((model, phase, batch, menu, str(at)), math.nan) for at in LAYERS}
        for phase in ("decode", "prefill")
        for batch in BATCHES
    }
    return {regime: curve for regime, curve in found.items() if not any(map(math.isnan, curve.values()))}


def claims_findings() -> Iterator[Claim]:
    """Batch against phase, and what is lost by layers that were chosen under fewer schedules."""
    for name, curves in (
        ("published DeepSeek-V3", published_16()),
        *((model, curves_of(model, "per_module")) for model in ("DeepSeek-V3", "Qwen3-235B")),
    ):
        found = regrets(curves)
        print(f"\n{name}: regret in columns of the layers that are best for rows, {len(curves)} of 10 regimes")
        for a in curves:
            print(f"{' '.join(a):>14}", *(f"{found[a, b]:6.1%}" for b in curves))
        seen = means(found)
        shown = ", ".join(f"{kind} {loss:.1%}" for kind, loss in seen.items())
        if len(seen) == 3:
            batch, phase, *_ = seen.values()
            why = "the phase divides designs more, in their own figure 16 too, where designs are numbers of layers"
            yield Claim(f"{name}: batch divides designs more than phase", shown, "first above second", batch > phase,
                        f"{len(curves)} of 10 regimes", why)  # fmt: skip
    for model in ("DeepSeek-V3", "Qwen3-235B"):
        whole = curves_of(model, "per_module")
        for menu in MENUS[:-1]:
            narrow = curves_of(model, menu)
            lost = {
                regime: 1 - whole[regime][max(curve, key=curve.__getitem__)] / max(whole[regime].values())
                for regime, curve in narrow.items()
                if regime in whole
            }
            if lost:
                shown = ", ".join(f"{' '.join(regime)} {loss:.1%}" for regime, loss in lost.items())
                yield Claim(f"{model}: layers chosen under {menu} lose for good", shown, "above 0 somewhere",
                            max(lost.values()) > 0, f"{len(lost)} of 10 regimes")  # fmt: skip


CLAIMS: Final[dict[str, Callable[[], Iterator[Any]]]] = {
    "16": claims_16, "17": claims_17, "20": claims_20, "21": claims_21, "table-4": claims_table_4,
    "findings": claims_findings, "controls": claims_controls, "long-prompts": claims_long_prompts,
}  # fmt: skip
