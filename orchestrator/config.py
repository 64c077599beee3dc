"""Settings from orch.toml, ORCH_* variables and options; where tasks, data and runs live.

Later wins: defaults, then `orch.toml` (working folder, else the home folder), then `ORCH_*`
variables, then command-line options.
"""

from functools import cached_property
from pathlib import Path
from typing import Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from orchestrator.errors import ConfigInvalid, did_you_mean

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent
CONFIG_FILE = "orch.toml"
OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com"


def _in_checkout() -> bool:
    return (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "tasks").is_dir()


def default_home() -> Path:
    """The checkout when run from one, else the user's data folder."""
    return CHECKOUT if _in_checkout() else Path(platformdirs.user_data_dir("orch"))


def bundled(name: Literal["tasks", "images"]) -> Path:
    """Folder of the shipped tasks or images, in a checkout and in an installed wheel alike."""
    return CHECKOUT / name if _in_checkout() else PACKAGE / "_bundled" / name


class Price(BaseModel):
    """US dollars per million tokens. `cached_input`: of prompt tokens that the provider had read
    before; where None, as all others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(None, ge=0)
    as_of: str = ""
    """When the provider asked that, e.g. `2026-10`."""


class Settings(BaseSettings):
    """Every setting is also an option of the command that uses it."""

    model_config = SettingsConfigDict(env_prefix="ORCH_", extra="forbid", frozen=True)

    home: Path = Field(default_factory=default_home)
    """Folder that holds `runs/` and `holdout/`."""
    tasks: Path | None = None
    """An additional folder of tasks, searched first."""
    ollama_url: str | None = None
    """An Ollama that runs already, e.g. http://127.0.0.1:11434."""
    ollama_image: str | None = None
    """Image for the Ollama that orch starts itself; default: the pinned one."""
    ollama_models: Path | None = None
    """Existing model folder of the host, used read-only by the Ollama that orch starts."""
    flash_attention: bool = True
    kv_cache_type: Literal["f16", "q8_0", "q4_0"] = "f16"
    gpu: Literal["auto", "legacy", "cdi", "off"] = "auto"
    runtime: str | None = None
    """Engine runtime that submissions run under, e.g. `runsc`; default: the engine's own."""
    openai_url: str = OPENAI_URL
    """Base of the API behind `openai/NAME`: OpenAI's own or any that is compatible."""
    anthropic_url: str = ANTHROPIC_URL
    """Base of the API behind `anthropic/NAME`."""
    prices: dict[str, Price] = {}
    """By model reference; go before those that orch brings along."""
    uplink_network: str | None = None
    """Existing network through which the gateway reaches the models (Compose sets it)."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        toml = TomlConfigSettingsSource(settings_cls, toml_file=config_file())
        return init_settings, env_settings, toml

    @cached_property
    def runs_dir(self) -> Path:
        return self.home / "runs"

    @cached_property
    def holdout_dir(self) -> Path:
        return self.home / "holdout"

    def task_folders(self) -> list[Path]:
        """Folders that hold tasks, the user's first."""
        own = [self.tasks] if self.tasks else []
        return [*own, bundled("tasks")]


def config_file() -> Path | None:
    """The orch.toml in force, if there is one."""
    for folder in (Path.cwd(), default_home()):
        if (folder / CONFIG_FILE).is_file():
            return folder / CONFIG_FILE
    return None


def load_settings(**options: object) -> Settings:
    """Settings with the given options on top; an option that is None was not given.

    Raises ConfigInvalid with a sentence that names source, field and mend.
    """
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as exc:
        error = exc.errors()[0]
        field = str(error["loc"][0]) if error["loc"] else "settings"
        if error["type"] == "extra_forbidden":
            hint = did_you_mean(field, Settings.model_fields, "remove it")
            raise ConfigInvalid(f"{config_file()}: unknown setting {field!r}; {hint}") from None
        raise ConfigInvalid(
            f"setting {field} (option, ORCH_{field.upper()} or {CONFIG_FILE}): {error['msg']}"
        ) from None
    except ValueError as exc:
        raise ConfigInvalid(f"{config_file()}: not valid TOML: {exc}") from None
