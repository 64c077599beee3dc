"""Lock files: held while a process lives, and freed by the kernel when it is killed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def held(path: Path) -> bool:
    """Whether any process, this one among them, holds a lock on the file; False without a file."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(file)
