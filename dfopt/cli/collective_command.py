"""``dfopt collective``: how long one collective takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from dfopt.cli.common import AssumeOpt, JsonFlag, SetOpt, SystemArg, app, argument, emit, errors, option


@app.command()
def collective(
    kind: Annotated[
        str,
        argument("KIND", "One of all_reduce, all_gather, reduce_scatter, all_to_all, broadcast and point_to_point."),
    ],
    system: SystemArg,
    size: Annotated[
        str,
        option("Size of the larger buffer of one chip, as nccl-tests counts, such as 1GiB.", "--bytes", metavar="SIZE"),
    ],
    dims: Annotated[
        str | None,
        option("Network dims that the chips span, such as node,cluster[2]; default: all.", metavar="DIM[,DIM...]"),
    ] = None,
    assume: AssumeOpt = None,
    changes: SetOpt = None,
    as_json: JsonFlag = False,
) -> None:
    """Tell how long a collective takes on a system, its algorithm and its bandwidth.

    Examples:
        dfopt collective all_reduce h100-8 --bytes 1GiB
        dfopt collective all_to_all h100:64 --bytes 64MiB --dims node
        dfopt collective all_gather a100-512 --bytes 1GB --json
    """
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
