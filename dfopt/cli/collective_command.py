"""``dfopt collective``: how long one collective takes."""

from __future__ import annotations

from dataclasses import asdict

from dfopt.cli.common import app, emit, errors


@app.command()
def collective(
    kind: str,
    system: str,
    size: str,
    dims: str | None = None,
    assume: str | None = None,
    set_: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Tell how long a collective takes on a system, its algorithm and its bandwidth.

    Arguments:
        kind (KIND): One of all_reduce, all_gather, reduce_scatter, all_to_all, broadcast and point_to_point.
        system (SYSTEM): Machine: a zoo name, NAME:CHIPS such as h100:64, a design, or a file.

    Options:
        size (--bytes SIZE): Size of the larger buffer of one chip, as nccl-tests counts, such as 1GiB.
        dims (DIM[,DIM...]): Network dims that the chips span, such as node,cluster[2]; default: all.

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

        chosen = assumed_by(assume or "default", set_, as_system(system))
        names = [name.strip() for name in (dims or "").split(",") if name.strip()]
        timing = timed(kind, chosen.system, parse(size, "bytes"), names, chosen.assumptions)
        rates = {name: getattr(timing, name) for name in ("algorithm_bandwidth", "bus_bandwidth")}
        emit(as_json, lambda: asdict(timing) | rates, lambda: collective_facts(timing))
