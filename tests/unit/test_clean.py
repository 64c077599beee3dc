import pytest

from orchestrator.sandbox.engine import Kind, Owned
from orchestrator.sandbox.labels import Owner
from orchestrator.trial.clean import Cleaned, Fate, Item, fate_of, may_be_busy


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (Owner(trial="dead", role="agent"), Fate.LEFT_OVER),
        (Owner(trial="alive", role="agent"), Fate.IN_USE),
        (Owner(trial="elsewhere", role="agent"), Fate.FOREIGN),
    ],
)
def test_labels_and_leases_alone_decide(owner: Owner, expected: Fate) -> None:
    item = Owned("volume", "id", "name", owner)
    assert fate_of(item, alive={"alive"}, ours={"alive", "dead"}, busy=True) is expected


@pytest.mark.parametrize(
    ("role", "idle"),
    [("environment", Fate.CACHE), ("data", Fate.CACHE), ("ollama-models", Fate.MODELS)],
)
def test_a_cache_stays_while_any_trial_lives(role: str, idle: Fate) -> None:
    item = Owned("volume", "id", "name", Owner(trial="", role=role))
    assert fate_of(item, alive=set(), ours={"dead"}, busy=False) is idle
    assert fate_of(item, alive={"alive"}, ours={"alive"}, busy=True) is Fate.IN_USE


@pytest.mark.parametrize(
    ("kind", "trial", "expected"),
    [
        ("container", "elsewhere", True),
        ("volume", "elsewhere", False),
        ("container", "dead", False),
        ("container", "", False),
    ],
)
def test_containers_of_another_home_may_be_a_living_trial(
    kind: Kind, trial: str, expected: bool
) -> None:
    item = Owned(kind, "id", "name", Owner(trial=trial, role="agent"))
    assert may_be_busy([item], alive=set(), ours={"dead"}) is expected
    assert may_be_busy([], alive={"alive"}, ours={"alive"})


def test_each_object_is_told_with_what_happened_to_it() -> None:
    item = Item(kind="volume", name="v", trial="t", role="agent", fate=Fate.LEFT_OVER, removed=True)
    done = Cleaned(dry_run=False, items=[item]).lines()
    planned = Cleaned(dry_run=True, items=[item]).lines()
    assert done[0].endswith("(left-over): removed")
    assert planned[0].endswith("would be removed")
    assert Cleaned(dry_run=False, items=[]).lines() == ["nothing of ours on the engine"]
