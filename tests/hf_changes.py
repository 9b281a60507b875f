"""Configs of Hugging Face models with one field changed, of which nothing may be read in silence."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

OTHERS: list[Any] = [None, True, 1.5, "x", [], {}, -3, 0, [1, 0], {"a": 1}, 10**30]


class Change(NamedTuple):
    """What was done (removed, renamed, added or changed), to which field, and the value that it had."""

    what: str
    field: str
    value: Any


def altered(part: dict[str, Any], data: st.DataObject) -> Change:
    """Change one field of a config, or of a part of it, in place."""
    field = data.draw(st.sampled_from(sorted(part)))
    what, value = data.draw(st.sampled_from(["removed", "renamed", "added", "changed"])), part[field]
    if what == "added":
        names = st.text("abcdefgh_", min_size=3, max_size=12).filter(lambda name: name not in part)
        part[data.draw(names)] = data.draw(st.sampled_from([0, None, True, 8, "x"]))
    elif what == "changed":
        part[field] = data.draw(st.sampled_from(OTHERS))
    else:
        del part[field]
        if what == "renamed":
            part[f"{field}_"] = value
    return Change(what, field, value)
