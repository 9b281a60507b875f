"""The prose tool against cases that were counted by hand, and the bars of the README and the guide."""

from __future__ import annotations

from pathlib import Path

import prose
import pytest
from prose import GLOSSARY, PAGES, TERMS, Measures, bare_figures, blocks, faults, is_passive, measure, sentences, words

PAGE = """# A heading is no sentence

dfopt finds the fastest mapping. It is written in Python 3.11, e.g. for `dfopt solve a b`, and
*tiles* are [linked here](x.md). Is this the third sentence?

| a prose.table | is no prose. |
| --- | --- |

- one item without a full stop
- another item. With two sentences
  on two lines

```console
$ dfopt solve is.not --prose
```

    indented code is no prose

<!-- nor is. A comment -->
![nor a picture](p.svg)
The end!
"""


def test_a_page_counted_by_hand() -> None:
    seen = measure("page", PAGE, "")
    assert [len(words(sentence)) for sentence in seen.sentences] == [5, 14, 5, 6, 2, 6, 2]
    assert seen.mean == pytest.approx(40 / 7)
    assert (seen.lengths, seen.p90, seen.long) == ([2, 2, 5, 5, 6, 6, 14], 6, [])
    assert seen.passive == (seen.sentences[1],) and seen.passive_share == pytest.approx(1 / 7)
    assert seen.unknown == ("mapping",)
    assert seen.lines == 21


def test_blocks_are_paragraphs_and_items() -> None:
    assert list(blocks("one\ntwo\n\n1. three\n2. four\n> five\n")) == ["one two", "three", "four five"]


@pytest.mark.parametrize(
    "text, count",
    [
        ("It takes 1.5 s. It ends.", 2),
        ("See Fig. 3 and e.g. Table 2. `code` begins a sentence.", 2),
        ("Ko et al. report it (arXiv:2205.05198). (So do we.)", 2),
        ("no stop", 1),
        ("...", 0),
    ],
)
def test_sentences(text: str, count: int) -> None:
    assert len(sentences(text)) == count


@pytest.mark.parametrize(
    "text, passive",
    [
        ("dfopt proves the bound.", False),
        ("The bound is proven.", True),
        ("Plans are not always listed.", True),
        ("The chip needs more speed.", False),
        ("It is red and is in need of feed.", False),
        ("Weights were taken and kept.", True),
        ("You get finished results.", False),
        ("The result has been read.", True),
    ],
)
def test_passive(text: str, passive: bool) -> None:
    assert is_passive(text) is passive


@pytest.mark.parametrize(
    "text, faulty",
    [
        ("What binds?", []),
        ("The answer shows what binds.", []),
        ("Weights are what fills the memory.", ["what"]),
        ("Of several plans some are skipped.", ["Of ..."]),
        ("Of course it works.", []),
        ("The held-out rows agree.", []),
        ("Activations are held beside weights.", ["beside", "held"]),
    ],
)
def test_faults(text: str, faulty: list[str]) -> None:
    assert faults(text) == faulty


def test_a_term_is_known_from_the_page_or_the_glossary() -> None:
    page = "A microbatch runs through the **pipeline stage**, where the bubble waits. TP and `MFU`."
    assert prose.unknown_terms(page, "") == ["microbatch", "pipeline bubble", "tensor parallelism"]
    assert prose.unknown_terms(page, "| microbatch | mb |\n\n- **bubble**: idle time\n\n| TP | tensor |") == []
    assert len(TERMS) >= 60


def test_figures_need_a_command_or_a_source() -> None:
    assert bare_figures("It takes 5.1 s and 30 % of 8 chips.") == ["5.1 s", "30 %"]
    assert bare_figures("It takes 5.1 s.\n\n```console\n$ dfopt x\nstep 5.1 s\n```\n") == []
    assert bare_figures("`dfopt solve a b` takes 5.1 s.") == [] == bare_figures("30 % ([Ko](x.md)).")


def of(page: Path) -> Measures:
    return measure(page.name, page.read_text(encoding="utf-8"), GLOSSARY.read_text(encoding="utf-8"))


def test_the_readme_keeps_its_bars() -> None:
    seen = of(prose.ROOT / "README.md")
    assert seen.lines <= 250 and seen.words <= 2500
    assert seen.mean <= 15 and seen.long == [] and seen.passive_share <= 0.12
    assert (seen.unknown, seen.banned, seen.figures) == ((), (), ())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_guide_keeps_its_bars(page: Path) -> None:
    seen = of(page)
    assert seen.mean <= 16, prose.table([seen])
    assert (seen.long, seen.unknown, seen.banned, seen.figures) == ([], (), (), ())
