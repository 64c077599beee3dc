"""The plan of a trial: a pure function of models, repeats and seed."""

import hashlib
import re
from collections.abc import Mapping

from orchestrator.records.schema import RunSpec


def run_seed(trial_seed: int, index: int) -> int:
    """Seed of the run with this index: the same for every model, different for every index.

    The first 31 bits of sha256("seed:index"), so that any server accepts it as a positive int32.
    """
    digest = hashlib.sha256(f"{trial_seed}:{index}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def slug(model: str) -> str:
    """A model reference as part of a file name: `gpt-oss:20b` → `gpt-oss-20b`.

    A replay is called by its run alone: `replay/TRIAL/RUN` → `replay-RUN`.
    """
    if model.startswith("replay/"):
        model = f"replay-{model.rpartition('/')[2]}"
    return re.sub(r"[^A-Za-z0-9.]+", "-", model).strip("-.") or "model"


def make_plan(
    models: list[str], repeats: int, seed: int, recorded: Mapping[str, int] | None = None
) -> list[RunSpec]:
    """Run specs, interleaved: run 1 of each model, then run 2 of each, and so on.

    A model in `recorded` is a replay: it has one run only, with the seed given there.
    Two models whose slugs agree get distinct run ids by the model's place in the list.
    """
    slugs = [slug(model) for model in models]
    names = [
        name if slugs.count(name) == 1 else f"{name}-m{place + 1}"
        for place, name in enumerate(slugs)
    ]
    recorded = recorded or {}
    return [
        RunSpec(
            run_id=f"{name}-{index + 1:02d}",
            model=model,
            index=index,
            seed=recorded.get(model, run_seed(seed, index)),
        )
        for index in range(repeats)
        for model, name in zip(models, names, strict=True)
        if index == 0 or model not in recorded
    ]
