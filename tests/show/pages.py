"""What tests ask of an HTML page: its tags, its texts, and that it is whole."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

EMPTY = {"meta", "link", "br", "img", "input", "hr"}


@dataclass
class Element:
    """An element with its attributes and all the text inside."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    parent: Element | None = None
    children: list[Element] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[Element] = [Element("root", {})]
        self.found: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"<{tag}> has an attribute twice: {names}"
        made = Element(tag, {name: value or "" for name, value in attrs}, parent=self.open[-1])
        self.open[-1].children.append(made)
        self.found.append(made)
        if tag not in EMPTY:
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data


def elements(page: str) -> list[Element]:
    """All elements in order; tags that are not closed in order, or attributes given twice, are failures."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert [one.tag for one in reader.open] == ["root"], f"left open: {[one.tag for one in reader.open]}"
    return reader.found


def of(page: list[Element], tag: str, **attributes: str) -> list[Element]:
    """Elements of a tag with these attributes (``class_`` for class)."""
    wanted = {name.rstrip("_"): value for name, value in attributes.items()}
    return [one for one in page if one.tag == tag and all(one.attributes.get(name) == v for name, v in wanted.items())]


def table(page: list[Element], caption: str) -> list[list[str]]:
    """The texts of a table by its caption: header and rows."""
    found = [one for one in of(page, "table") if of(inside(one), "caption")[0].text.startswith(caption)]
    assert len(found) == 1, f"{len(found)} tables are called {caption!r}"
    return [[cell.text for cell in row.children] for row in of(inside(found[0]), "tr")]


def inside(element: Element) -> list[Element]:
    """All elements below one."""
    return [one for child in element.children for one in (child, *inside(child))]


def facts(page: list[Element]) -> dict[str, str]:
    """The description lists of a page, the first of each name."""
    found: dict[str, str] = {}
    for name, value in zip(of(page, "dt"), of(page, "dd"), strict=True):
        found.setdefault(name.text, value.text)
    return found


def check(page: str) -> list[Element]:
    """A page that is one file, accessible in form, and whose references all have a target; returns its elements."""
    assert len(page.encode()) < 1_000_000
    found = elements(page)
    ids = [one.attributes["id"] for one in found if "id" in one.attributes]
    assert len(set(ids)) == len(ids), "ids are given twice"
    for one in found:
        assert not any(name.startswith("on") for name in one.attributes), f"<{one.tag}> has a handler"
        assert one.tag not in {"iframe", "object", "embed", "base", "form", "video", "audio"}
        for name, value in one.attributes.items():
            if name in ("href", "src", "xlink:href"):
                assert value.startswith("#") or value.startswith("data:"), f"<{one.tag} {name}={value!r}>"
                assert not value.startswith("#") or value[1:] in ids, f"nothing has the id {value[1:]!r}"
            for target in re.findall(r"url\(([^)]*)\)", value):
                assert target.startswith("#") and target[1:] in ids, target
        for target in one.attributes.get("aria-labelledby", "").split():
            assert target in ids
    assert of(found, "html")[0].attributes["lang"] == "en"
    assert of(found, "title")[0].text.strip()
    levels = [int(one.tag[1]) for one in found if re.fullmatch("h[1-6]", one.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    for one in of(found, "svg"):
        assert one.attributes["role"] == "img" and one.attributes["aria-label"]
    styles = "".join(one.text for one in of(found, "style"))
    assert "@import" not in styles and "url(" not in styles
    assert len(of(found, "script")) == 1
    return found
