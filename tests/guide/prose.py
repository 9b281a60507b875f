"""Measure prose: ``python tests/guide/prose.py PAGE...`` prints a row for each page.

Prose is the text outside of code blocks, tables, headings, comments and pictures. A code span counts as one word, a
link as its text. A sentence ends with ``.``, ``!`` or ``?`` before an upper-case letter, a number or a code span, or
with its paragraph or list item.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "dfopt" / "guide"
GLOSSARY = GUIDE / "glossary.md"
PAGES = [ROOT / "README.md", *sorted(GUIDE.glob("*.md"))]
CODE = "`code`"  # what every code span is while words are counted

# Terms of the field and of dfopt that a page may only use if the glossary has them or the page introduces them (in
# bold or italics). Each is a regular expression of whole words, without regard to case unless it has upper case.
_PLAIN = (  # these with or without an s at the end
    "1F1B, activation, all-gather, all-reduce, all-to-all, arithmetic intensity, branch and bound, chunk, collective, "
    "compute tile, contraction, down-set, DRAM, evaluator, extent, GEMM, gradient, HFU, incumbent, kernel, KV cache, "
    "layout, linear program, lower bound, mapping, MFU, MILP, module, operating point, optimizer state, partition, "
    "phase, placement, plan, prefill, processed tokens, profile, reduce-scatter, replica, roofline, routing, sample, "
    "schedule, scheme, sensitivity, sequence parallelism, shadow price, speculative decoding, SRAM, tier, tile, two "
    "levels, utilization, workload"
)
TERMS = {name: f"{name}s?" for name in _PLAIN.split(", ")} | {
    "activation recomputation": "recomput(?:es?|ed|ing|ation)",
    "alpha-beta model": "alpha-beta",
    "assignment matrix": "assignment matri(?:x|ces)",
    "attention data parallelism": "attention data parallelism|attention DP",
    "batch": "batch(?:es)?",
    "bound": "(?:lower )?bounds?",
    "calibration": "calibrat(?:es?|ed|ions?)",
    "context parallelism": "context parallelism|CP",
    "data parallelism": "data parallelism|data-parallel|DP",
    "dataflow chip": "dataflow (?:chips?|execution|architectures?)",
    "decode": "decode|decoding",
    "design": "design space",
    "die stack": "(?:die )?stacks? of dies|die stacks?",
    "draft": "draft tokens?|drafts?",
    "efficiency": "efficienc(?:y|ies)",
    "elementwise kernel": "elementwise",
    "expert parallelism": "expert parallelism|EP",
    "fusion": "fus(?:ion|ions|ed|es|e)",
    "gap": "(?:optimality )?gaps?",
    "HBM": "HBM\\d?E?",
    "interleaved schedule": "interleav(?:ed|ing)",
    "kernel launch": "kernel launch(?:es)?",
    "latent attention": "latent attention|MLA",
    "microbatch": "microbatch(?:es)?",
    "mixture of experts": "mixtures? of experts|MoE",
    "network dim": "network dim(?:ension)?s?",
    "overlap": "overlap(?:s|ped|ping)?",
    "pipeline bubble": "bubbles?",
    "pipeline parallelism": "pipeline parallelism|PP",
    "pipeline stage": "(?:pipeline )?stages?",
    "proof": "proofs?|proves?|proven",
    "section": "sections",
    "sharding": "shard(?:s|ed|ing|ings)?",
    "step": "step times?",
    "streamed axis": "streamed ax(?:is|es)",
    "systolic array": "systolic (?:arrays?|tiles?)",
    "tensor parallelism": "tensor parallelism|TP",
    "throttling": "throttl(?:es?|ed|ing)",
    "topology": "topolog(?:y|ies)",
    "two-batch overlap": "two-batch overlap|TBO",
    "ZeRO": "ZeRO(?:-\\d)?",
}
# Calques and empty words, each with what to write instead.
BANNED = {
    r"told|tell(?:s|ing)? apart": "report, distinguish",
    r"beside": "next to, in addition to",
    r"drawn(?: out)?|draws?": "build, unroll, plot",
    r"held(?!-out)|holds? against": "store, compare with",
    r"made of|is made|are made|was made": "name who makes it",
    r"as usual": "by default",
    r"asked for": "requested",
    r"taken at its word": "used as it is",
    r"stands? at": "is, ends with",
    r"counts? as (?:one|many)": "name the unit",
    r"one by one|one after the other": "in order, in sequence",
    r"such ones?|those that|that which": "repeat the noun",
    r"by itself|for itself": "alone, automatically",
    r"in truth|of one's own": "say it plainly",
    r"simply|just|easily|obviously": "leave it out",
    r"door": "interface",
    r"judged?|judges|judging": "evaluator, re-evaluates",
    r"copies share": "replicas shard",
}
_BE = r"(?:am|is|are|was|were|be|been|being)"
_BETWEEN = r"(?:\s+(?:not|never|always|only|then|still|often|already|now|both|all|also|either|\w+ly))*"
_IRREGULAR = (
    "built|bought|brought|chosen|cut|done|driven|fed|found|given|gone|grown|held|hidden|hit|kept|known|laid|led|left|"
    "let|lost|made|meant|met|paid|put|read|run|said|seen|sent|set|shown|shut|split|spent|spread|stood|taken|thought|"
    "told|understood|won|worn|written|drawn|proven|overridden|withdrawn|rebuilt|rewritten|laid|begun|broken|forbidden|held|bound|fit"
)
_NOT_PARTICIPLES = {"need", "speed", "feed", "seed", "exceed", "indeed", "bed", "red", "based", "unshared", "supposed"}
_PASSIVE = re.compile(rf"\b{_BE}{_BETWEEN}\s+(\w+ed|{_IRREGULAR})\b", re.IGNORECASE)
_SAYING = "(?:says?|shows?|asks?|knows?|explains?|sees?|decides?|lists?|reports?|learn|finds?|exactly|and|of|on)"
_WHAT = re.compile(r"(?<!\w)(?<!matter )(\w+)?\s*\bwhat(?:ever)?\b(?! if)", re.IGNORECASE)
_ABBREVIATIONS = r"(?:e\.g|i\.e|et al|vs|cf|Fig|Figs|No|Sec|Eq|approx|resp|Inc|Ko et al)\."
_UNITS = (
    r"%|ms|us|ns|s\b|min\b|minutes|hours|tokens/s|[kMGTPE]?i?B/s|[GT]iB|[kMGT]B|[kMGTP]FLOP(?:/s|/J)?|k?W\b|kelvin|K\b"
    r"|degC|[kM]?J\b|USD|GHz|MHz|seconds"
)
_FIGURE = re.compile(rf"(?<![\w.,-])(?<![AHB][12]00 )(\d[\d,]*(?:\.\d+)?)\s?(?:{_UNITS})(?![\w])")
_TESTED = re.compile(r"^```(?:console|python)\n.*?^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Measures:
    """What one page measures: counts, lengths in words, shares, and what a reader stumbles over."""

    page: str
    lines: int
    words: int
    sentences: tuple[str, ...]
    passive: tuple[str, ...]
    unknown: tuple[str, ...]
    banned: tuple[str, ...]
    figures: tuple[str, ...]

    @property
    def lengths(self) -> list[int]:
        """Words of every sentence, the shortest first."""
        return sorted(len(words(sentence)) for sentence in self.sentences)

    @property
    def mean(self) -> float:
        """Mean words of a sentence."""
        return sum(self.lengths) / max(1, len(self.lengths))

    @property
    def p90(self) -> int:
        """Words that nine of ten sentences do not exceed."""
        return self.lengths[int(0.9 * (len(self.lengths) - 1) + 0.5)] if self.lengths else 0

    @property
    def long(self) -> list[str]:
        """Sentences of more than 30 words."""
        return [sentence for sentence in self.sentences if len(words(sentence)) > 30]

    @property
    def passive_share(self) -> float:
        """Share of sentences with a passive verb."""
        return len(self.passive) / max(1, len(self.sentences))


def blocks(page: str) -> Iterator[str]:
    """Paragraphs and list items of a page as single lines, with code spans and links replaced."""
    page = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    page = re.sub(r"^(```|~~~).*?^\1[^\S\n]*$", "", page, flags=re.MULTILINE | re.DOTALL)
    block: list[str] = []
    blank = True
    for line in [*page.splitlines(), ""]:
        plain = line.strip()
        code = blank and not block and line.startswith("    ") and not re.match(r"\s*(?:[-*+]|\d+\.)\s", line)
        table, heading = plain.startswith("|"), plain.startswith("#")
        item = bool(re.match(r"(?:[-*+]|\d+\.)\s+", plain))
        if (not plain or table or heading or item) and block:
            yield " ".join(block)
            block = []
        blank = not plain or (blank and code)
        if plain and not (table or heading or code or re.fullmatch(r"[-=*_]{3,}", plain)):
            block.append(_inline(re.sub(r"^(?:(?:[-*+]|\d+\.)\s+|>\s?)", "", plain)))


def _inline(text: str) -> str:
    """A line without marks of code, links, pictures and emphasis."""
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", CODE, text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"(\*\*|__|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w))", "", text)


def sentences(block: str) -> list[str]:
    """The sentences of one paragraph or item."""
    guarded = re.sub(_ABBREVIATIONS, lambda found: found[0].replace(".", "\0"), block)
    parts = re.split(r"(?<=[.!?])[\"')\]]?\s+(?=[A-Z0-9`\"'(\[]|dfopt\b)", guarded)
    return [part.replace("\0", ".").strip() for part in parts if words(part)]


def words(text: str) -> list[str]:
    """The words of a text: everything between spaces that has a letter or a digit."""
    return [word for word in text.split() if re.search(r"[^\W_]", word)]


def is_passive(sentence: str) -> bool:
    """Whether a sentence has a form of *be* with a participle."""
    return any(found[1].lower() not in _NOT_PARTICIPLES for found in _PASSIVE.finditer(sentence))


def faults(sentence: str) -> list[str]:
    """Banned words of a sentence, a *what* without a question or a verb of saying before it, a leading *Of*."""
    found = [match[0] for pattern in BANNED for match in re.finditer(rf"\b(?:{pattern})\b", sentence, re.IGNORECASE)]
    if not sentence.endswith("?"):
        before = [match[1] or "" for match in _WHAT.finditer(sentence)]
        found += ["what" for word in before if not re.fullmatch(_SAYING, word, re.IGNORECASE)]
    return found + ["Of ..."] * bool(re.match(r"Of\b(?! course)", sentence))


def known_terms(glossary: str) -> str:
    """The words that a glossary explains: bold ones, and the first two cells of the rows of its tables."""
    bold = re.findall(r"\*\*(.+?)\*\*", glossary)
    rows = [cell for line in glossary.splitlines() if line.startswith("|") for cell in line.split("|")[1:3]]
    return "\n".join([*bold, *rows])


def terms_in(text: str) -> set[str]:
    """The specialist terms that a text uses."""
    return {
        term
        for term, pattern in TERMS.items()
        if re.search(rf"(?<![\w-])(?:{pattern})(?![\w-])", text, 0 if pattern[:2].isupper() else re.IGNORECASE)
    }


def unknown_terms(page: str, glossary: str) -> list[str]:
    """Terms in the prose of a page that neither the page introduces (in bold or italics) nor the glossary explains."""
    introduced = "\n".join(found[1] for found in re.finditer(r"\*{1,2}([^*\n]+?)\*{1,2}", page))
    return sorted(terms_in(" ".join(blocks(page))) - terms_in(introduced) - terms_in(known_terms(glossary)))


def bare_figures(page: str) -> list[str]:
    """Figures with a unit in prose that no tested block repeats, in paragraphs that name no command and no source."""
    numbers = re.findall(r"\d[\d,]*(?:\.\d+)?", "\n".join(_TESTED.findall(page)))
    shown = {number.replace(",", "") for number in numbers}
    page = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    found = []
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.)\s)", prose):
        sourced = re.search(r"`(?:dfopt|python|pytest|--)[^`]*`|\]\(|arXiv|`[\w/]+\.(?:py|yaml|md|csv)`", paragraph)
        if not sourced:
            text = " ".join(blocks(paragraph))
            found += [match[0] for match in _FIGURE.finditer(text) if match[1].replace(",", "") not in shown]
    return found


def measure(name: str, page: str, glossary: str) -> Measures:
    """All measures of one page."""
    text = [sentence for block in blocks(page) for sentence in sentences(block)]
    return Measures(
        page=name,
        lines=page.count("\n"),
        words=len(words(page)),
        sentences=tuple(text),
        passive=tuple(filter(is_passive, text)),
        unknown=tuple(unknown_terms(page, glossary)),
        banned=tuple(word for sentence in text for word in faults(sentence)),
        figures=tuple(bare_figures(page)),
    )


def table(rows: list[Measures]) -> str:
    """The measures of several pages, a row each."""
    head = ("page", "lines", "words", "sentences", "mean", "p90", ">30", "passive", "unknown", "banned", "figures")
    cells = [
        (
            row.page, row.lines, row.words, len(row.sentences), f"{row.mean:.1f}", row.p90, len(row.long),
            f"{row.passive_share:.0%}", len(row.unknown), len(row.banned), len(row.figures),
        )
        for row in rows
    ]  # fmt: skip
    lines = [head, *cells]
    widths = [max(len(str(line[i])) for line in lines) for i in range(len(head))]
    pad = ("  ".join(str(cell).ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(pad)


def main(arguments: list[str]) -> None:
    """Print the table; with ``-v`` also every long or passive sentence and every fault."""
    glossary = GLOSSARY.read_text(encoding="utf-8") if GLOSSARY.exists() else ""
    names = [name for name in arguments if name != "-v"] or list(map(str, PAGES))
    rows = [measure(Path(name).name, Path(name).read_text(encoding="utf-8"), glossary) for name in names]
    print(table(rows))
    for row in rows if "-v" in arguments else []:
        for kind in ("long", "passive", "unknown", "banned", "figures"):
            for item in getattr(row, kind):
                where = next((s for s in row.sentences if kind in ("banned", "figures") and (item in s)), "")
                print(f"{row.page}: {kind}: {item}" + (f"   in: {where}" if where else ""))


if __name__ == "__main__":
    main(sys.argv[1:])
