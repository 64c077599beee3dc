"""What a container may use. One set an executed step; tasks override fields by name."""

from pydantic import BaseModel, ConfigDict, Field

MIB = 1 << 20
SANDBOX_UID = 10001


class Limits(BaseModel):
    """Caps that the engine enforces. Sizes in MiB, times in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory_mb: int = Field(4096, ge=16)
    """Memory and swap together; pages of the capped volumes written count too."""
    cpus: float = Field(2.0, gt=0)
    pids: int = Field(256, ge=8)
    wall_s: float = Field(600.0, gt=0)
    tmp_mb: int = Field(512, ge=1)
    """/tmp, a tmpfs."""
    shm_mb: int = Field(64, ge=1)
    work_mb: int = Field(1024, ge=1)
    """The copy of the workspace that a step works on, all files together."""
    output_mb: int = Field(64, ge=1)
    """The output volume, all files together."""
    log_kb: int = Field(256, ge=8)
    """Kept of each output stream: half head, half tail."""
    nofile: int = Field(1024, ge=32)
    fsize_mb: int = Field(1024, ge=1)
    """Largest single file."""


class EnvironmentRules(BaseModel):
    """What the environment of a submission may take, and whether packages may be built for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    allow_sdist: bool = False
    """Packages without a wheel for this platform are built: their code runs in the builder."""
    wall_s: float = Field(600.0, gt=0)
    """For resolving, and again for installing."""
    download_mb: int = Field(2048, ge=1)
    """Of all wheels together, as the index states their sizes; decided before they are loaded."""
    disk_mb: int = Field(6144, ge=1)
    """What installing may write: the unpacked wheels that are new, and the environment."""
