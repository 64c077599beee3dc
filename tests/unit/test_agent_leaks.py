"""What leaks into replies from their template: tokens, channels, turns, reasoning; and what only
looks like it."""

from __future__ import annotations

import pytest

from orchestrator.agents.builtin.replies import parse_reply

FILE = '```python\nprint("v")\n```'
PREDICT = {"predict.py": 'print("v")\n'}
FINAL = "<|channel|>final<|message|>"


@pytest.mark.parametrize(
    "text",
    [
        f"{FINAL}predict.py\n{FILE}<|return|>",
        f"<|start|>assistant{FINAL}predict.py\n{FILE}\n<|return|>",
        f"<|channel|>analysis<|message|>I write predict.py\n```python\nx\n```\n<|end|>"
        f"<|start|>assistant{FINAL}predict.py\n{FILE}\n<|return|>",
        # The beginning was taken off by the server, the rest was not.
        f"Hm, predict.py\n```python\nx\n```\n<|end|><|start|>assistant{FINAL}predict.py\n{FILE}",
        f"<|channel|>analysis<|message|>unclosed ```python\n<|end|>{FINAL}\npredict.py\n{FILE}",
        f"<|channel|>final <|constrain|>text<|message|>predict.py\n{FILE}",
        f"<|im_start|>assistant\npredict.py\n{FILE}<|im_end|>\n",
        f"<|im_start|>assistant predict.py\n{FILE}\n<|im_end|>",
        f"<|start_header_id|>assistant<|end_header_id|>\n\npredict.py\n{FILE}<|eot_id|>",
        f"<start_of_turn>model\npredict.py\n{FILE}<end_of_turn>",
        f"<｜begin▁of▁sentence｜>predict.py\n{FILE}<｜end▁of▁sentence｜>",
        f"<s>predict.py\n{FILE}</s>",
        f"[INST]predict.py[/INST]\n{FILE}</s>",
        f"### FILE: predict.py<|im_sep|>\n{FILE}",
        f"predict.py\n{FILE}\n<|im_end|>\n<|im_start|>user\nAlso a.py\n```python\nA = 1\n```\n",
        f"predict.py\n{FILE}\n<end_of_turn>\n<start_of_turn>user\na.py\n```python\nA = 1\n```\n",
        f"\ufeffpredict.py\n{FILE}",
        f"predict.py\n{FILE}".replace("\n", "\r\n"),
        f"<think>hm</think>predict.py\n{FILE}",
        f"<thinking>\npredict.py\n```python\nx\n```\n</thinking>\n\npredict.py\n{FILE}",
        f"Sure. <think>hm\npredict.py\n```python\nx\n```\n</think>\npredict.py\n{FILE}",
        f"```python # predict.py\n{FILE.split(chr(10), 1)[1]}",
        f"```python (predict.py)\n{FILE.split(chr(10), 1)[1]}",
        f"```python [predict.py]\n{FILE.split(chr(10), 1)[1]}",
        f"<!-- predict.py -->\n{FILE}",
        f"--- predict.py ---\n{FILE}",
        f"=== predict.py ===\n{FILE}",
    ],
)
def test_what_leaks_changes_no_file(text: str) -> None:
    reply = parse_reply(text)
    assert reply.files == PREDICT
    assert reply.refused == []


def test_a_turn_of_its_own_making_is_said() -> None:
    reply = parse_reply(f"predict.py\n{FILE}\n<|im_end|>\n<|im_start|>user\nThanks\n")
    assert reply.notes == ["the reply went on with a turn of its own making; ignored"]


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>analysis<|message|>I write predict.py\n```python\n# predict.py\nx\n```\n",
        "<|start|>assistant<|channel|>analysis<|message|>Only thoughts.",
    ],
)
def test_a_channel_of_reasoning_holds_no_file(text: str) -> None:
    reply = parse_reply(text)
    assert (reply.files, reply.nothing) == ({}, "only-thinking")


@pytest.mark.parametrize(
    "line",
    [
        'END = "<|im_end|>"',
        "<|im_start|>user",
        "<|channel|>final<|message|>",
        "<|start|>assistant<|channel|>final<|message|>hello",
        "</think>",
        "<think>",
        "x = '</thinking>'  # </thinking>",
        "[INST] {prompt} [/INST]",
        "<s>old</s>",
        "<｜end▁of▁sentence｜>",
    ],
)
def test_a_file_that_is_about_such_marks_stays_whole(line: str) -> None:
    text = f"# A chat template\n{line}\nend\n"
    for reply in (
        f"### FILE: template.txt\n````\n{text}````\n",
        f"Here it is.\n\ntemplate.txt\n```\n{text}```\n",
        f"<think>hm</think>\ntemplate.txt\n```\n{text}```\n<|im_end|>",
    ):
        found = parse_reply(reply)
        assert found.files == {"template.txt": text}, reply
        assert found.refused == []


def test_an_edit_keeps_such_marks_too() -> None:
    reply = parse_reply(
        "t.py\n```python\n<<<<<<< SEARCH\nE = '</s>'\n=======\nE = '<|im_end|>'\n"
        ">>>>>>> REPLACE\n```<|im_end|>\n"
    )
    (edit,) = reply.edits["t.py"]
    assert (edit.old, edit.new) == (("E = '</s>'",), ("E = '<|im_end|>'",))
