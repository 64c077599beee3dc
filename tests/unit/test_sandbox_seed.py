"""The seeding hook, in plain processes with the libraries that submissions use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.sandbox.inside import seed as package

HOOK = Path(next(iter(package.__path__)))
START = "import sys; sys.path.append({hook!r}); import orch_seed\n"
PLACE = "/opt/orch/seed"
"""Where the scorer's image has the hook."""

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
CHILDREN = """
import random, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import numpy as np

def draw(out, deeper=0):
    row = [random.random(), np.random.rand(), np.random.default_rng().random()]
    if deeper:
        context = get_context("spawn")
        child = context.Process(target=draw, args=(out,))
        child.start(); child.join()
    out.put(row)

if __name__ == "__main__":
    rows = []
    for method in ("spawn", "forkserver", "fork"):
        context = get_context(method)
        out = context.SimpleQueue()
        for number in range(3):
            child = context.Process(target=draw, args=(out, number == 2 and method == "spawn"))
            child.start(); rows.append(out.get()); child.join()
            while not out.empty():
                rows.append(out.get())
    for row in rows:
        print(*row)
"""
LOKY = """
import random
import numpy as np

def draw(_=None):
    return random.random(), np.random.rand(), np.random.default_rng().random()

if __name__ == "__main__":
    from joblib import Parallel, delayed
    from joblib.externals.loky import ProcessPoolExecutor
    with ProcessPoolExecutor(2) as executor:
        rows = list(executor.map(draw, range(4)))
    # As many batches as the clock makes of them: what comes after must not be shifted.
    for backend in ("loky", "multiprocessing"):
        rows += Parallel(n_jobs=2, backend=backend)(delayed(draw)() for _ in range(24))
    with ProcessPoolExecutor(1) as executor:
        rows.append(executor.submit(draw).result())
    for row in rows:
        print(*row)
"""
SEEDED_CHILD = """
import random
from multiprocessing import get_context
import numpy as np
random.seed(3); np.random.seed(3)

def draw(out):
    out.put((random.random(), np.random.rand()))

if __name__ == "__main__":
    context = get_context("spawn")
    out = context.SimpleQueue()
    child = context.Process(target=draw, args=(out,))
    child.start(); print(*out.get()); child.join()
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
    script.write_text(code)
    site = tmp_path / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(START.format(hook=str(HOOK)) if hook else "")
    env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    env["PYTHONPATH"] = str(site)
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


def test_children_of_multiprocessing_draw_apart_and_the_same_again(tmp_path: Path) -> None:
    rows = [row.split() for row in run(tmp_path, CHILDREN)]
    assert rows == [row.split() for row in run(tmp_path, CHILDREN)]
    assert len(rows) == 10
    # NumPy's global generator is copied by a fork, with the hook and without it.
    assert len({row[1] for row in rows[:7]}) == 7
    for column in (0, 2):
        assert len({row[column] for row in rows}) == 10


def test_loky_and_what_comes_after_it_draw_the_same_again(tmp_path: Path) -> None:
    rows = run(tmp_path, LOKY)
    assert rows == run(tmp_path, LOKY)
    assert len({number for row in rows for number in row.split()}) == 3 * 53


def test_a_child_whose_module_seeds_itself_gets_its_own_numbers(tmp_path: Path) -> None:
    assert run(tmp_path, SEEDED_CHILD) == run(tmp_path, SEEDED_CHILD, hook=False)


def test_a_program_that_seeds_itself_gets_its_own_numbers(tmp_path: Path) -> None:
    assert run(tmp_path, ITS_OWN) == run(tmp_path, ITS_OWN, hook=False)


def test_temporary_names_stay_apart(tmp_path: Path) -> None:
    code = "import tempfile\nprint(tempfile.mktemp())\n"
    assert run(tmp_path, code) != run(tmp_path, code)


@pytest.mark.parametrize("seed", [None, "", "x"])
def test_without_a_usable_seed_it_leaves_the_program_alone(
    tmp_path: Path, seed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import random\nprint(random.random())\n"
    if seed is None:
        # The file beside the hook would answer; without it nothing does.
        code = "import orch_seed\nprint(orch_seed.given())\norch_seed.FILE = '/nonexistent'\n"
        code += "print(orch_seed.given())"
        assert run(tmp_path, code, seed=None) == ["0", "None"]
    else:
        assert run(tmp_path, code, seed=seed) != run(tmp_path, code, seed=seed)


def test_it_imports_nothing_that_the_interpreter_has_not_loaded(tmp_path: Path) -> None:
    code = "print('random' in sys.modules, 'numpy' in sys.modules)"
    start = "import sys; before = set(sys.modules)\n" + START.format(hook=str(HOOK))
    rows = run(tmp_path, start + "print(sorted(set(sys.modules) - before))\n" + code, hook=False)
    assert rows == ["['__future__', 'orch_seed']", "False False"]


@pytest.mark.parametrize("name", ["orch_seed.pth", "sitecustomize.py"])
def test_nothing_stands_in_for_it_and_the_path_is_as_before_but_for_its_end(
    tmp_path: Path, name: str
) -> None:
    text = (HOOK / name).read_text()
    (tmp_path / "orch_seed.py").write_text("print('stood in')")
    code = "import sys\nbefore = list(sys.path)\n" + text.replace(PLACE, str(HOOK))
    code += "\nprint(sys.path == before + [{!r}], sys.modules['orch_seed'].given())"
    assert run(tmp_path, code.format(str(HOOK)), hook=False) == ["True 5"]


def test_the_line_for_site_packages_works_once_and_without_the_hook_does_nothing(
    tmp_path: Path,
) -> None:
    line = (HOOK / "orch_seed.pth").read_text()
    assert line.startswith("import ") and line.count("\n") == 1
    missing = line.replace(PLACE, str(tmp_path / "none"))
    present = line.replace(PLACE, str(HOOK))
    code = "import sys\nfor line in ({0!r}, {1!r}, {1!r}):\n    exec(line)\n"
    code = code.format(missing, present) + f"print(sys.path.count({str(HOOK)!r}))"
    assert run(tmp_path, code, hook=False) == ["1"]
