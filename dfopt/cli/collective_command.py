"""``dfopt collective``: how long one collective takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from dfopt.cli.common import AssumeOpt, JsonFlag, SetOpt, SystemArg, app, argument, emit, errors, option


@app.command()
def collective(
    kind: Annotated[
        str, argument("KIND", "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or point_to_point")
    ],
    system: SystemArg,
    size: Annotated[
        str, option("of the larger buffer of one chip, as nccl-tests counts, such as 1 GiB", "--bytes", metavar="SIZE")
    ],
    dims: Annotated[
        str | None,
        option("network dims that the chips span, or parts such as cluster[2]; default: all", metavar="DIM[,DIM...]"),
    ] = None,
    assume: AssumeOpt = None,
    changes: SetOpt = None,
    as_json: JsonFlag = False,
) -> None:
    """Say how long a collective of some KIND takes on a SYSTEM, by which algorithm, at which bandwidth."""
    with errors():
        from dfopt.api import collective as timed
        from dfopt.cli.common import assumed_by
        from dfopt.library import as_system
        from dfopt.show.collective import collective_facts
        from dfopt.units import parse

        chosen = assumed_by(assume or "default", changes, as_system(system))
        names = [name.strip() for name in (dims or "").split(",") if name.strip()]
        made = timed(kind, chosen.system, parse(size, "bytes"), names, chosen.assumptions)
        rates = {name: getattr(made, name) for name in ("algorithm_bandwidth", "bus_bandwidth")}
        emit(as_json, lambda: asdict(made) | rates, lambda: collective_facts(made))
