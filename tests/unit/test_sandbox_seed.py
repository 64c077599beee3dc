"""The seeding hook, in plain processes with the libraries that submissions use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.sandbox.inside import seed as package

HOOK = Path(next(iter(package.__path__)))
START = "import sys; sys.path.append({hook!r}); import orch_seed\n"

DRAWS = """
import random
import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

X, y = make_classification(120, 6, flip_y=0.3, random_state=0)
forest = RandomForestClassifier(8).fit(X, y)
for number in (
    random.random(), random.Random().random(), np.random.rand(), np.random.default_rng().random(),
    np.random.RandomState().rand(), forest.predict_proba(X).std(),
):
    print(number)
"""
WORKERS = """
import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import numpy as np

def draw(_=None):
    return random.random(), np.random.rand(), np.random.default_rng().random()

if __name__ == "__main__":
    from joblib import Parallel, delayed
    with get_context("fork").Pool(2) as pool:
        rows = pool.map(draw, range(6), chunksize=1)
        rows += [pool.apply_async(draw).get() for _ in range(2)]
    with ProcessPoolExecutor(2) as executor:
        rows += list(executor.map(draw, range(4)))
    rows += Parallel(n_jobs=2)(delayed(draw)() for _ in range(6))
    for row in rows:
        print(*row)
"""
FORKS = """
import os, random
import numpy as np
for _ in range(3):
    if not (child := os.fork()):
        print(random.random(), np.random.default_rng().random(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
print(random.random())
"""
ITS_OWN = """
import random
import numpy as np
random.seed(7); np.random.seed(7)
print(random.random(), np.random.rand(), random.Random(7).random())
print(np.random.default_rng(7).random(), np.random.RandomState(7).rand())
"""


def run(tmp_path: Path, code: str, *, hook: bool = True, seed: str | None = "5") -> list[str]:
    script = tmp_path / "program.py"
    start = START.format(hook=str(HOOK)) if hook else ""
    # A program's own code comes after the interpreter's start, in workers too.
    script.write_text(start + code)
    env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    if seed is not None:
        env["ORCH_SEED"] = seed
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=env, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "orch_seed" not in done.stderr
    return done.stdout.splitlines()


def differ(one: list[str], two: list[str]) -> bool:
    return all(a != b for a, b in zip(one, two, strict=True))


def test_an_unseeded_program_draws_the_same_five_times_and_not_without(tmp_path: Path) -> None:
    first, *others = [run(tmp_path, DRAWS) for _ in range(5)]
    assert all(other == first for other in others)
    assert differ(first, run(tmp_path, DRAWS, seed="6"))
    assert differ(run(tmp_path, DRAWS, hook=False), run(tmp_path, DRAWS, hook=False))


def test_each_task_of_a_worker_draws_its_own_numbers_and_the_same_again(tmp_path: Path) -> None:
    rows = run(tmp_path, WORKERS)
    assert rows == run(tmp_path, WORKERS)
    assert len(rows) == 18
    for column in range(3):
        assert len({row.split()[column] for row in rows}) == 18
    assert rows != run(tmp_path, WORKERS, hook=False)


def test_forked_children_draw_apart_and_the_same_again(tmp_path: Path) -> None:
    rows = run(tmp_path, FORKS)
    assert rows == run(tmp_path, FORKS)
    assert len({number for row in rows for number in row.split()}) == 7


def test_a_program_that_seeds_itself_gets_its_own_numbers(tmp_path: Path) -> None:
    assert run(tmp_path, ITS_OWN) == run(tmp_path, ITS_OWN, hook=False)


def test_temporary_names_stay_apart(tmp_path: Path) -> None:
    code = "import tempfile\nprint(tempfile.mktemp())\n"
    assert run(tmp_path, code) != run(tmp_path, code)


@pytest.mark.parametrize("seed", [None, "", "x"])
def test_without_a_usable_seed_it_leaves_the_program_alone(
    tmp_path: Path, seed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "orch_seed.FILE = ''\nimport random\nprint(random.random())\n"
    if seed is None:
        # The file beside the hook would answer; without it nothing does.
        code = "print(orch_seed.given())\norch_seed.FILE = '/nonexistent'\nprint(orch_seed.given())"
        assert run(tmp_path, code, seed=None) == ["0", "None"]
    else:
        assert run(tmp_path, code, seed=seed) != run(tmp_path, code, seed=seed)


def test_it_imports_nothing_that_the_interpreter_has_not_loaded(tmp_path: Path) -> None:
    code = "print('random' in sys.modules, 'numpy' in sys.modules)"
    start = "import sys; before = set(sys.modules)\n" + START.format(hook=str(HOOK))
    rows = run(tmp_path, start + "print(sorted(set(sys.modules) - before))\n" + code, hook=False)
    assert rows == ["['__future__', 'orch_seed']", "False False"]


def test_the_line_for_site_packages_works_once_and_without_the_hook_does_nothing(
    tmp_path: Path,
) -> None:
    line = (HOOK / "orch_seed.pth").read_text()
    assert line.startswith("import ") and line.count("\n") == 1
    missing = line.replace("/opt/orch/seed", str(tmp_path / "none"))
    present = line.replace("/opt/orch/seed", str(HOOK))
    code = "import sys\nfor line in ({0!r}, {1!r}, {1!r}):\n    exec(line)\n"
    code = code.format(missing, present) + f"print(sys.path.count({str(HOOK)!r}))"
    assert run(tmp_path, code, hook=False) == ["1"]
