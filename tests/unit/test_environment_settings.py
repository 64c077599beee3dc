"""What a builder is told of the host's package indexes, and what a lock says is installed."""

from __future__ import annotations

import pytest

from orchestrator.sandbox.environment import locked_packages
from orchestrator.sandbox.indexes import index_settings, pip_settings


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ({}, {}),
        ({"PIP_INDEX_URL": "https://a.invalid"}, {"UV_DEFAULT_INDEX": "https://a.invalid"}),
        (
            {"PIP_INDEX_URL": "https://a.invalid", "UV_DEFAULT_INDEX": "https://b.invalid"},
            {"UV_DEFAULT_INDEX": "https://b.invalid"},
        ),
        ({"PIP_EXTRA_INDEX_URL": "https://c.invalid"}, {"UV_INDEX": "https://c.invalid"}),
        ({"PIP_INDEX_URL": ""}, {}),
    ],
)
def test_the_host_s_indexes_are_used(host, inside):
    assert index_settings({"PIP_CONFIG_FILE": "/dev/null"} | host) == inside


def test_pip_s_own_files_are_read(tmp_path):
    first, second, broken = (tmp_path / name for name in ("first", "second", "broken"))
    first.write_text("[global]\nextra-index-url =\n    https://a.invalid\n    https://b.invalid\n")
    second.write_text(
        "[global]\nindex-url = https://c%40.invalid\nextra-index-url = https://d.invalid\n"
        "[install]\nindex-url = https://e.invalid\n"
    )
    broken.write_bytes(b"\xff = [")
    assert pip_settings([broken, tmp_path / "none", first, second]) == {
        "UV_INDEX": "https://a.invalid https://b.invalid",
        "UV_DEFAULT_INDEX": "https://e.invalid",
    }
    second.write_text("[global]\nindex-url = https://c%40.invalid\n")
    host = {"PIP_CONFIG_FILE": str(second)}
    assert index_settings(host)["UV_DEFAULT_INDEX"] == "https://c%40.invalid"
    host["UV_INDEX_URL"] = "https://f.invalid"
    assert index_settings(host)["UV_DEFAULT_INDEX"] == "https://f.invalid"


def test_a_lock_lists_what_is_installed():
    lock = (
        "numpy==2.4.6 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n"
        'Typing_Extensions==4.16.0 ; python_version < "3.13" \\\n    --hash=sha256:22\n'
        "uvicorn[standard]==0.54.0 \\\n    --hash=sha256:33\n"
    )
    assert locked_packages(lock) == {
        "numpy": "2.4.6",
        "typing-extensions": "4.16.0",
        "uvicorn": "0.54.0",
    }
    assert locked_packages("") == {}
