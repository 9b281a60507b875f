"""The search over plans that a test gives, whatever else a question allows."""

from __future__ import annotations

from collections.abc import Sequence

from dfopt.documents.plan import Plan
from dfopt.search.graph_search import GraphSearch
from dfopt.search.state import SearchState
from dfopt.search.workload_search import WorkloadSearch
from dfopt.setting.instance import Setting
from dfopt.solving.options import Options


def searched(setting: Setting, plans: Sequence[Plan], options: Options) -> GraphSearch:
    """What is found and known of some plans; the mappings are in its ``state``."""
    graph = GraphSearch(setting, SearchState(options), plans)
    WorkloadSearch([graph]).run()
    return graph
