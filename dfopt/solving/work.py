"""Units of work (:class:`dfopt.bnb.Clock`) that steps of the search charge: each about 2.5 us of an idle processor.

Each is what the step took on average over the questions of ``benchmarks/speed``, in round figures. What depends on the
size of a stage, as pricing blocks does, is charged where it is done.
"""

from __future__ import annotations

from typing import Final

LISTED: Final = 10.0
"""A plan is listed, or refused."""
BOUNDED: Final = 10.0
"""A plan is bounded, with others of its table."""
TABLE: Final = 2_000.0
"""What chips see of a model under some plans is bounded: what each kernel takes at least."""
OPENED: Final = 4_000.0
"""A layer is priced with every figure at its least, for one domain of options."""
PREPARED: Final = 700.0
"""The stages of a plan under one sharding are priced."""
JUDGED: Final = 1_500.0
"""A mapping is judged."""
