"""The package indexes that the host's own pip or uv would use, as uv's variables."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import platformdirs

VARIABLES = {
    "UV_DEFAULT_INDEX": "UV_DEFAULT_INDEX",
    "UV_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "UV_INDEX": "UV_INDEX",
    "UV_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
}
"""The host's variables → uv's; of two with one meaning the first counts."""
PIP_KEYS = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX"}
PIP_SECTIONS = ("install", "global")


def index_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """From the host's variables, and for what they leave open from pip's configuration files."""
    found: dict[str, str] = {}
    for name, ours in VARIABLES.items():
        if environ.get(name):
            found.setdefault(ours, environ[name])
    for ours, value in pip_settings(_pip_files(environ)).items():
        found.setdefault(ours, value)
    return found


def pip_settings(files: Iterable[Path]) -> dict[str, str]:
    """From pip's files, the first that says something counts; unreadable ones say nothing."""
    found: dict[str, str] = {}
    for file in files:
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read_string(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, configparser.Error):
            continue
        for section in PIP_SECTIONS:
            for key, ours in PIP_KEYS.items():
                value = " ".join(parser.get(section, key, fallback="").split())
                if value:
                    found.setdefault(ours, value)
    return found


def _pip_files(environ: Mapping[str, str]) -> list[Path]:
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    user = [Path(platformdirs.user_config_dir("pip"), "pip.conf"), Path.home() / ".pip/pip.conf"]
    return [*([Path(named)] if named else []), *user, Path("/etc/pip.conf")]
