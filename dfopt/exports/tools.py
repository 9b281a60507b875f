"""All tools that mappings are exported to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dfopt.exports.deepspeed import DEEPSPEED
from dfopt.exports.megatron import MEGATRON
from dfopt.exports.nemo import NEMO
from dfopt.exports.tool import Tool
from dfopt.exports.torchtitan import TORCHTITAN

TOOLS: Final[Mapping[str, Tool]] = {tool.name: tool for tool in (MEGATRON, DEEPSPEED, TORCHTITAN, NEMO)}
"""Tools by name: a new one is a table in a module of its own, and an entry here."""
