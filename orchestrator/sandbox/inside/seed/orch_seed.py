"""Fixed seeds for a Python program that sets none: imported at the interpreter's start.

The seed comes from the variable ORCH_SEED or, where the program has emptied its environment, from
the file beside this one. A library is touched only once the program itself has imported it:

- `random`: the global generator is seeded; `Random()` and `seed()` take seeds in a fixed order.
- `numpy.random`: the global generator is seeded (what scikit-learn and scipy draw from where no
  `random_state` is given); all entropy that NumPy would ask the system for comes in a fixed order.
- joblib, loky, `multiprocessing.Pool`, `ProcessPoolExecutor`: each task brings a seed by its place
  in the call, so that it does not matter which worker takes it.
- a child of `multiprocessing` that is spawned, or forked by its server, is given a seed by its
  number, in force before the program's main module is imported there.
- a forked child's `random` is seeded by the fork's number, where Python would reseed it anyhow.

A program that seeds itself gets the numbers that it would get without this. docs/scoring.md says
what can't be fixed from here.

Imports only what every interpreter has loaded already: it must cost next to nothing.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.machinery import ModuleSpec
    from typing import Any

VARIABLE = "ORCH_SEED"
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "value")  # noqa: PTH100,PTH118,PTH120
_64 = (1 << 64) - 1
ENTROPY, GENERATOR, TASK, JOB, FORK, PROCESS = range(6)
"""What seeds are derived for: each counts by itself, so that one use does not shift another."""


class State:
    """The seed in force in this process, or in the task that it runs; and what came from it."""

    def __init__(self) -> None:
        self.start(0)

    def start(self, seed: int) -> None:
        self.seed = seed
        self.given = dict.fromkeys((ENTROPY, GENERATOR, TASK, FORK, PROCESS), 0)

    def fresh(self, purpose: int) -> int:
        number = self.given[purpose]
        self.given[purpose] = number + 1
        return derive(self.seed, purpose, number)


state = State()


def derive(*numbers: int) -> int:
    """64 bits that depend on all of `numbers`, the same on every platform (splitmix64)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed ^ (number & _64)) + 0x9E3779B97F4A7C15 & _64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _64
        mixed ^= mixed >> 31
    return mixed


def entropy(bits: int) -> int:
    """In place of the system's: the next `bits` random bits, as an integer."""
    seed = state.fresh(ENTROPY)
    words = (derive(seed, place) << 64 * place for place in range((bits + 63) // 64))
    return sum(words) & ((1 << bits) - 1)


def seed_globals(seed: int) -> None:
    """Seed the global generators of the libraries that are loaded."""
    modules = sys.modules
    if hasattr(modules.get("random"), "_inst"):
        modules["random"].seed(seed)
    if hasattr(modules.get("numpy.random"), "mtrand"):
        modules["numpy.random"].seed(seed & 0xFFFFFFFF)
    if hasattr(modules.get("torch"), "manual_seed"):
        modules["torch"].manual_seed(seed >> 1)


class Task:
    """A function with a seed that it sets where it runs in another process than it was made in."""

    __slots__ = ("function", "home", "seed")

    def __init__(self, function: Callable[..., Any], seed: int, home: int) -> None:
        self.function = function
        self.seed = seed
        self.home = home

    def __reduce__(self) -> tuple[Any, ...]:
        return Task, (self.function, self.seed, self.home)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if os.getpid() != self.home:
            state.start(self.seed)
            seed_globals(self.seed)
        return self.function(*args, **kwargs)


def task(function: Callable[..., Any], seed: int | None = None) -> Callable[..., Any]:
    # What joblib hands to a pool is a batch of tasks, as large as the clock made it: it must not be
    # counted, and each call in it has its seed.
    inner = getattr(function, "func", function)
    if isinstance(inner, Task) or getattr(inner, "holds_tasks", False) is True:
        return function
    return Task(function, state.fresh(TASK) if seed is None else seed, os.getpid())


def seed_random(module: Any) -> None:
    original = module.Random.seed

    def seed(self: Any, a: Any = None, version: int = 2) -> None:
        if a is None and not _is_for_tempfile():
            a = state.fresh(GENERATOR)
        original(self, a, version)

    seed.__doc__ = original.__doc__
    module.Random.seed = seed
    module.seed = module._inst.seed
    module.seed(state.seed)
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)


def _is_for_tempfile() -> bool:
    # Names of temporary files have to differ between processes that work side by side.
    frame = sys._getframe(2)
    if frame.f_code.co_name == "__init__" and frame.f_back is not None:
        frame = frame.f_back
    return bool(frame.f_globals.get("__name__") == "tempfile")


_fork = 0


def _before_fork() -> None:
    global _fork
    _fork = state.fresh(FORK)


def _in_child() -> None:
    # NumPy's global generator is left as it is: a child has its parent's, seeded or not.
    state.start(_fork)
    sys.modules["random"].seed(_fork)


def seed_numpy(module: Any) -> None:
    # The one place where NumPy asks for entropy: SeedSequence(None), thus default_rng() and all.
    if not hasattr(module.bit_generator, "randbits"):
        raise AttributeError("numpy.random.bit_generator has no randbits")
    module.bit_generator.randbits = entropy
    module.seed(state.seed & 0xFFFFFFFF)


def seed_joblib(module: Any) -> None:
    class BatchedCalls(module.BatchedCalls):  # type: ignore[misc]
        holds_tasks = True

        def __init__(self, calls: Any, *args: Any, **kwargs: Any) -> None:
            seeded = [(task(call[0]), *call[1:]) for call in calls]
            super().__init__(seeded, *args, **kwargs)

    # Pickled by name: in the worker that name is this class too.
    BatchedCalls.__module__ = module.__name__
    BatchedCalls.__qualname__ = "BatchedCalls"
    module.BatchedCalls = BatchedCalls


def seed_executor(module: Any) -> None:
    original = module.ProcessPoolExecutor.submit

    def submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return original(self, task(fn), *args, **kwargs)

    module.ProcessPoolExecutor.submit = submit


def seed_pool(module: Any) -> None:
    pool = module.Pool
    original_tasks, original_apply = pool._guarded_task_generation, pool.apply_async

    def _guarded_task_generation(self: Any, job: Any, func: Any, items: Any) -> Iterator[Any]:
        # Runs in a thread of the pool's: numbered by job and place, not in order of happening.
        for number, place, function, args, kwargs in original_tasks(self, job, func, items):
            seed = derive(state.seed, JOB, number, place)
            yield number, place, task(function, seed), args, kwargs

    def apply_async(self: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        return original_apply(self, task(func), *args, **kwargs)

    pool._guarded_task_generation = _guarded_task_generation
    pool.apply_async = apply_async


def seed_spawn(module: Any) -> None:
    # Both ends of what a parent tells a new child before all else.
    original_data, original_prepare = module.get_preparation_data, module.prepare

    def get_preparation_data(name: str) -> Any:
        return original_data(name) | {VARIABLE: state.fresh(PROCESS)}

    def prepare(data: Any) -> Any:
        seed = data.get(VARIABLE)
        if seed is not None:
            state.start(seed)
            seed_globals(seed)
        return original_prepare(data)

    module.get_preparation_data = get_preparation_data
    module.prepare = prepare


def seed_torch(module: Any) -> None:
    module.manual_seed(state.seed >> 1)


waiting: dict[str, Callable[[Any], None]] = {
    "random": seed_random,
    "numpy.random": seed_numpy,
    "joblib.parallel": seed_joblib,
    "joblib.externals.loky.process_executor": seed_executor,
    "loky.process_executor": seed_executor,
    "concurrent.futures.process": seed_executor,
    "multiprocessing.spawn": seed_spawn,
    "multiprocessing.pool": seed_pool,
    "torch": seed_torch,
}
"""Module → what to do once it is imported."""


class Finder:
    """Finds nothing itself; sees to it that a module in `waiting` is seeded once it has run."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in waiting:
            return None
        for finder in sys.meta_path:
            spec = None if finder is cls else finder.find_spec(name, path, target)
            if spec is not None:
                _watch(spec.loader, name)
                return spec
        return None


def _watch(loader: Any, name: str) -> None:
    run = loader.exec_module

    def exec_module(module: Any) -> None:
        run(module)
        apply(name, module)

    # On this loader alone, never on a class that serves others.
    if not isinstance(loader, type):
        loader.exec_module = exec_module


def apply(name: str, module: Any) -> None:
    seeding = waiting.pop(name, None)
    if seeding is None:
        return
    try:
        seeding(module)
    except Exception as error:  # noqa: BLE001 - must never end the program; the trace tells
        sys.stderr.write(f"orch_seed: {name} is not seeded: {error!r}\n")


def given() -> int | None:
    """The seed from outside; None where there is none."""
    text = os.environ.get(VARIABLE)
    if text is None:
        try:
            with open(FILE, encoding="ascii") as file:  # noqa: PTH123
                text = file.read(32)
        except (OSError, ValueError):
            return None
    try:
        return int(text) & _64
    except ValueError:
        return None


def install() -> None:
    seed = given()
    if seed is None:
        return
    state.start(seed)
    for name in list(waiting):
        if name in sys.modules:
            apply(name, sys.modules[name])
    sys.meta_path.insert(0, Finder)


install()
