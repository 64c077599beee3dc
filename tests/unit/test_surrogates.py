"""Halves of surrogate pairs, which a model may write and UTF-8 can't hold."""

import json

from orchestrator.records.calls import loads_whole


def test_halves_become_question_marks_and_pairs_stay() -> None:
    line = json.dumps({"reply": "a\ud800b\udc80", "whole": "\U0001f600", "\udfff": [1]})
    assert loads_whole(line) == {"reply": "a?b?", "whole": "\U0001f600", "?": [1]}
