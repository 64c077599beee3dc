"""What the seeding hook adds to the start of an interpreter, in the image that submissions run in.

Pairs of starts, one right after the other, the order turned about; medians and the bound.
"""

from __future__ import annotations

import json
import sys

from shown import table

from orchestrator.sandbox import image
from orchestrator.sandbox.container import ContainerSpec, run_step
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner

BOUND_MS = 5.0
PAIRS = 60
MEASURE = f"""
import json, statistics, subprocess, sys, time
HOOK = "import sys; sys.path.append('/opt/orch/seed'); import orch_seed\\n"

def took(code):
    began = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
    return (time.perf_counter() - began) * 1000

rows = {{}}
for name, code in (("nothing", "pass"), ("random", "import random")):
    without, added = [], []
    for number in range({PAIRS}):
        pair = (code, HOOK + code)[:: 1 if number % 2 else -1]
        times = [took(one) for one in pair]
        plain, hooked = times if number % 2 else times[::-1]
        without.append(plain)
        added.append(hooked - plain)
    rows[name] = statistics.median(without), statistics.median(added)
print(json.dumps(rows))
"""


def main() -> int:
    engine = Engine.connect()
    scorer = image.ensure(engine, "scorer")
    spec = ContainerSpec(scorer.id, Owner(trial="", role="bench"), env={"ORCH_SEED": "1"})
    ended = run_step(engine, spec, ("python3", "-I", "-S", "-c", MEASURE))
    if ended.exit_code != 0:
        print(ended.stderr.text, file=sys.stderr)
        return 1
    rows: dict[str, list[float]] = json.loads(ended.stdout.text)
    head = ("a program that imports", "start without", "the hook adds", "bound", "")
    told = [
        (name, f"{without:.1f} ms", f"{added:+.2f} ms", f"< {BOUND_MS:g} ms",
         "PASS" if added < BOUND_MS else "over")
        for name, (without, added) in rows.items()
    ]  # fmt: skip
    print(table(head, told))
    return 0 if all(added < BOUND_MS for _, added in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
