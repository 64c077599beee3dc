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
