"""Claims about what models are: counts beside those that are published, and files of models, whole and mutilated."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import yaml

from claims.rows import ROOT, Asked, Row, run, without_data
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.zoo import find, zoo
from dfopt.errors import DocumentError
from dfopt.frontends.hf import recipe
from dfopt.workloads import expand, sizes_of

ZOO, CONFIGS = "zoo/models.yaml", "zoo/hf_configs"
CALLED = {
    "qwen3-vl-8b-vision-tower": "qwen3-vl-8b-vision",
    "dlrm-v2-dcn-mlperf": "dlrm-v2-mlperf",
}  # here -> in the zoo
ACTIVE = {"deepseek-v3": 37e9, "kimi-k2": 32e9, "qwen3-235b-a22b": 22e9, "gpt-oss-120b": 5.1e9}  # model cards
# Bytes that are kept of a token beside those of that list: a key of 128 features of each layer's indexer.
BESIDE = {"deepseek-v3.2": 61 * 128 * 2}
PARAMETERS, TOKEN = 0.015, 0.02
MUTATED, MOST_SECONDS = 200, 0.2
TEXTS = ("text_config", "llm_config", "thinker_config")


def counts(asked: Asked) -> Iterator[Row]:
    """Parameters, those that a token uses, and what is kept of one, beside what makers publish."""
    yield from _published(asked)
    for name, published in ACTIVE.items():
        figure = _sizes(name)["active_parameters"]
        off = figure.computed / published - 1
        seen = f"{figure.computed / 1e9:.3f} billion, {off:+.2%}"
        yield Row("active parameters", name, seen, f"{published / 1e9:g} billion to 2 %", abs(off) <= TOKEN)
    done = run(["-m", "dfopt", "check", *(str(path) for path in sorted((ROOT / "graphs").glob("*.yaml")))])
    seen = f"exit code {done.code}, {done.out.count(': ok')} graphs ok"
    yield Row("counts of the zoo", "`dfopt check graphs/*.yaml`", seen, "exit code 0", done.code == 0)


def _sizes(name: str) -> dict[str, Any]:
    return {figure.name: figure for figure in sizes_of(load_strict(find("graphs", name)), name)}


def _published(asked: Asked) -> Iterator[Row]:
    """Counts against a list that was made apart."""
    limits = f"{PARAMETERS:.1%}", "equal"
    if asked.reference is None:
        yield without_data("parameters", ZOO, limits[0])
        yield without_data("bytes kept of a token", ZOO, limits[1])
        return
    far, other, missing, compared, kept, most = [], [], [], 0, 0, 0.0
    for model in yaml.safe_load((asked.reference / ZOO).read_text(encoding="utf-8"))["models"]:
        name = CALLED.get(model["id"], model["id"])
        if not model.get("params_published") and not model.get("kv_bytes_per_token_16bit"):
            continue
        if name not in zoo("graphs"):
            missing.append(name)
            continue
        sizes = _sizes(name)
        if model.get("params_published") and sizes:
            off, compared = abs(sizes["parameters"].computed / float(model["params_published"]) - 1), compared + 1
            most = max(most, off)
            far += [f"{name} {off:.2%}"] if off > PARAMETERS else []
        if model.get("kv_bytes_per_token_16bit") and sizes:
            kept += 1
            found = sizes["kv_bytes_per_token"].computed
            listed = int(model["kv_bytes_per_token_16bit"])
            if found != listed + BESIDE.get(name, 0):
                other.append(f"{name} {found} for {listed}")
        if not sizes:
            missing.append(name)
    seen = f"{compared} models, {most:.2%} at most" + (f"; {', '.join(far)}" if far else "")
    seen += f"; not in the zoo, or not counted: {', '.join(missing)}" if missing else ""
    yield Row("parameters", ZOO, seen, limits[0], not far and compared > 0)
    seen = f"{kept} models" + (f"; {', '.join(other)}" if other else "")
    seen += "; beside that list: " + ", ".join(f"{name} {more} of an indexer" for name, more in BESIDE.items())
    yield Row("bytes kept of a token", ZOO, seen, limits[1], not other and kept > 0)


class Read(NamedTuple):
    """How a config was read: the recipe or the refusal, and seconds."""

    recipe: dict[str, Any] | None
    refusal: str
    seconds: float


def _read(config: dict[str, Any], name: str) -> Read:
    began = time.perf_counter()
    try:
        found = recipe(config, name)
        expand(found)
    except DocumentError as error:
        return Read(None, str(error), time.perf_counter() - began)
    return Read(found, "", time.perf_counter() - began)


def _text(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a config that is the text model."""
    inside = next((name for name in TEXTS if isinstance(config.get(name), dict)), None)
    return _text(config[inside]) if inside else config


def mutated(config: dict[str, Any], random: Random) -> tuple[dict[str, Any], str, str]:
    """A copy in which a field is removed, renamed or added; what was done, and to which field."""
    found = copy.deepcopy(config)
    part = random.choice([found, _text(found)])
    what = random.choice(["removed", "renamed", "added"])
    field = random.choice(sorted(part))
    if what == "added":
        field = "".join(random.choices("abcdefgh", k=8))
        part[field] = random.choice([0, None, True, 8, "x"])
    else:
        value = part.pop(field)
        if what == "renamed":
            part[f"{field}_"] = value
    return found, what, field


def _silent(whole: dict[str, Any], read: Read, what: str, field: str) -> str:
    """What is wrong with how a mutated config was read, if anything.

    A field that nobody knows is refused. One that is missing is refused, or named among what the file leaves out, or it
    was one without which the graph is the same.
    """
    if read.recipe is None:
        return "" if "$" in read.refusal else f"refused without a path ({what} {field})"
    if what != "removed":
        return f"{what} {field} taken"
    left = {key: value for key, value in read.recipe.items() if key != "description"}
    same = left == {key: value for key, value in whole.items() if key != "description"}
    return "" if same or field in read.recipe["description"] else f"{field} left out in silence"


def configs(asked: Asked) -> Iterator[Row]:
    """Files of published models, as they are and with a field removed, renamed or added."""
    limit = f"each built, or refused by its path; 9 of 10 model types built; {MOST_SECONDS:g} s each"
    wrong_limit = f"none taken in silence, {MOST_SECONDS:g} s each"
    if asked.reference is None:
        yield without_data("configs", CONFIGS, limit)
        yield without_data("mutated configs", CONFIGS, wrong_limit)
        return
    files: dict[str, dict[str, Any]] = {
        path.name: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((asked.reference / CONFIGS).glob("*.json"))
    }
    _read(next(iter(files.values())), "warm")
    reads = {name: _read(config, name) for name, config in files.items()}
    built = [name for name, read in reads.items() if read.recipe is not None]
    bare = [name for name, read in reads.items() if read.recipe is None and "$." not in read.refusal]
    types, drawn = ({_text(files[name])["model_type"] for name in names} for names in (files, built))
    slowest = max(read.seconds for read in reads.values())
    seen = f"{len(built)} of {len(files)} built, {len(drawn)} of {len(types)} types, slowest {slowest:.3f} s"
    seen += f"; refused without a path: {', '.join(bare)}" if bare else ""
    met = not bare and len(drawn) >= 0.9 * len(types) and slowest < MOST_SECONDS
    yield Row("configs", CONFIGS, seen, limit, met)
    random, wrong, refused, slowest = Random(0), [], 0, 0.0
    for _ in range(MUTATED):
        name = random.choice(built)
        config, what, field = mutated(files[name], random)
        read = _read(config, name)
        whole = reads[name].recipe
        assert whole is not None
        wrong += [f"{name}: {one}" for one in [_silent(whole, read, what, field)] if one]
        refused, slowest = refused + (read.recipe is None), max(slowest, read.seconds)
    seen = f"{refused} of {MUTATED} refused, {len(wrong)} wrong, slowest {slowest:.3f} s"
    seen += f": {'; '.join(wrong[:5])}" if wrong else ""
    yield Row("mutated configs", CONFIGS, seen, wrong_limit, not wrong and slowest < MOST_SECONDS)
