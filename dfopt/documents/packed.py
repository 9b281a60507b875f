"""Data that repeats itself, as a short text: JSON, compressed, in base 85."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any


def packed(data: Any) -> str:
    """JSON-compatible data as compressed text.

    >>> unpacked(packed({"microbatch": [1, 2]}))
    {'microbatch': [1, 2]}
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    # level 6: 9 takes four times as long for 1 % less
    return base64.b85encode(zlib.compress(text, 6)).decode("ascii")


def unpacked(text: str) -> Any:
    """Data of a text made by :func:`packed`.

    Raises
    ------
    ValueError
        If the text is not packed data, or has more than that.
    """
    try:
        sent, stream = base64.b85decode(text), zlib.decompressobj()
        content = stream.decompress(sent)
    except zlib.error as error:
        raise ValueError(f"the compressed data is damaged: {error}") from None
    if stream.unused_data or not stream.eof or base64.b85encode(sent).decode() != text:
        raise ValueError("more or less than packed data")
    return json.loads(content)


class OrPacked:
    """Type annotation: a JSON file may hold the packed text of the data."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "string"}]}
