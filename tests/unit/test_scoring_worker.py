"""A worker's jobs end apart from it and from one another; a worker that is lost is made anew."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from orchestrator.scoring import worker
from orchestrator.scoring.worker import Answer, Worker, WorkerLost

PROGRAM = """
import os, signal, time
from orchestrator.scoring.worker import serve
seen = []
def handle(job):
    seen.append(job)
    words = job.decode().split()
    if words[0] == "fail": raise ValueError("no good")
    if words[0] == "exit": os._exit(3)
    if words[0] == "die": os.kill(os.getpid(), signal.SIGSEGV)
    if words[0] == "hang": time.sleep(60)
    if words[0] == "greedy": bytearray(1 << 30)
    if words[0] == "kill": os.kill(os.getppid(), signal.SIGKILL)
    if words[0] == "large": return bytes(1 << 22)
    return b"%d of %d" % (len(seen), os.getppid())
if __name__ == "__main__":
    serve(handle, seconds=0.5, memory_bytes=512 << 20)
"""


@pytest.fixture
def working(tmp_path, monkeypatch) -> Iterator[Worker]:
    (tmp_path / "jobs.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    made = Worker("jobs", seconds=5)
    yield made
    made.stop()


def test_each_job_is_the_first_of_its_process_and_all_of_one_worker(working):
    working.start()
    first, second = working.ask(b"do"), working.ask(b"do")
    assert first == second
    assert first.status == 0
    assert first.content.startswith(b"1 of ")
    assert working.ask(b"large").content == bytes(1 << 22)


@pytest.mark.parametrize(
    ("job", "status", "says"),
    [
        (b"fail", 1, b"ValueError: no good"),
        (b"exit", 3, b""),
        (b"die", -signal.SIGSEGV, b""),
        (b"hang", -signal.SIGALRM, b""),
        (b"greedy", 1, b"MemoryError"),
    ],
)
def test_how_a_job_ended_is_told_and_the_next_is_done(working, job, status, says):
    answer = working.ask(job)
    assert answer.status == status
    assert says in answer.content
    assert working.ask(b"do").status == 0


def test_a_worker_that_is_gone_is_told_and_another_does_the_next(working):
    with pytest.raises(WorkerLost, match="it ended with status -9: no output"):
        working.ask(b"kill")
    assert working.ask(b"do").status == 0


def test_a_worker_that_can_not_start_says_why():
    with pytest.raises(WorkerLost, match="No module named"):
        Worker("orchestrator.scoring.no_such", seconds=5).ask(b"do")


def test_an_answer_that_does_not_come_is_not_waited_for(working, monkeypatch):
    working.ask(b"do")
    monkeypatch.setattr(worker, "_SPARE_S", -4.9)
    with pytest.raises(WorkerLost, match="no answer within"):
        working.ask(b"hang")
    assert working._process is None


def test_whoever_is_interrupted_leaves_no_answer_for_the_next(working, monkeypatch):
    kept = Worker._read

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        working.ask(b"fail")
    monkeypatch.setattr(Worker, "_read", kept)
    assert working.ask(b"do").status == 0


def test_it_ends_when_its_owner_does(working):
    working.start()
    process = working._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    until = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    assert process.returncode == 0
    assert isinstance(working.ask(b"do"), Answer)
