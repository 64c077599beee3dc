"""Run once while the image is built: put `sitecustomize.py` into the standard library.

Not on PYTHONPATH, which `-I`, `-E` and a program that sets its own would lose. Compiled, since
the image is read-only when it runs.
"""

import compileall
import py_compile
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
STDLIB = Path(sysconfig.get_path("stdlib"))


def main() -> None:
    place = STDLIB / "sitecustomize.py"
    # Debian's is a link into /etc.
    place.unlink(missing_ok=True)
    place.write_bytes((HERE / "sitecustomize.py").read_bytes())
    for source in (place, HERE / "orch_seed.py"):
        done = compileall.compile_file(
            source, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
        if not done:
            raise SystemExit(f"{source} does not compile")


if __name__ == "__main__":
    main()
