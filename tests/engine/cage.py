"""What must hold inside a scorer's container: the one list, and the program that tries each there.

Run as `python cage.py NAME…` (all of them without names): prints `NAME<TAB>what is wrong` for each,
nothing after the tab where it holds. Each is tried in a process of its own. Only the standard
library, since it runs where nothing else is installed.
"""

import contextlib
import os
import re
import resource
import signal
import socket
import sys
import threading
from pathlib import Path

MIB = 1 << 20
DEVICES = {
    "console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr",
    "stdin", "stdout", "tty", "urandom", "zero",
}  # fmt: skip
WRITABLE = ("/workspace", "/out", "/tmp", "/dev/shm", "/dev/mqueue")
"""The two folders, and what is in memory, capped and gone with the container."""
OUTSIDE = ("1.1.1.1", "172.17.0.1", "192.168.0.1", "10.0.0.1")
MASKED = (Path("/proc/kcore"), Path("/proc/keys"), Path("/proc/timer_list"))
CAPS = {"memory": 128, "pids": 48, "cpus": 0.5, "tmp": 4, "shm": 2, "work": 8, "out": 4, "file": 6}
"""The limits that the container is given: MiB, a count, CPUs."""
OPEN_FILES = 64


def status(field: str) -> str:
    text = Path("/proc/self/status").read_text()
    return re.search(rf"^{field}:\s*(.*)$", text, re.MULTILINE)[1]


def no_route() -> str:
    places = [name for _, name in socket.if_nameindex() if name != "lo"]
    for where in OUTSIDE:
        try:
            socket.create_connection((where, 53), 1).close()
            places.append(where)
        except ConnectionRefusedError:
            places.append(where)
        except OSError:
            pass
    return " ".join(places)


def no_name_server() -> str:
    question = bytes.fromhex("abcd01000001000000000000076578616d706c6503636f6d0000010001")
    for line in Path("/etc/resolv.conf").read_text().splitlines():
        words = line.split()
        if words[:1] != ["nameserver"]:
            continue
        family = socket.AF_INET6 if ":" in words[1] else socket.AF_INET
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.settimeout(2)
            asked.sendto(question, (words[1], 53))
            return f"{words[1]} answers with {len(asked.recv(512))} bytes"
    return ""


def not_root() -> str:
    found = (os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups())
    return "" if found == (10001,) * 4 + ([10001],) else str(found)


def no_capability() -> str:
    found = [status(name) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
    return "" if set(found) == {"0" * 16} else " ".join(found)


def no_new_privileges() -> str:
    return "" if status("NoNewPrivs") == "1" else "NoNewPrivs is not set"


def system_calls_filtered() -> str:
    return "" if status("Seccomp") == "2" else f"Seccomp is {status('Seccomp')}"


def no_other_place_to_write() -> str:
    """Tries each folder there is, the mounted ones too."""
    written = []
    for folder, folders, _ in os.walk("/"):
        if folder == "/":
            folders[:] = set(folders) - {"proc", "sys"}
        if not folder.startswith(WRITABLE) and writes_in(folder):
            written.append(folder)
    return " ".join(written)


def data_read_only() -> str:
    return " ".join(place for place in ("/data", "/in", "/env") if writes_in(place))


def writes_in(folder: str) -> bool:
    path = Path(folder, ".cage-probe")
    try:
        path.touch()
    except OSError:
        return False
    path.unlink()
    return True


def no_device() -> str:
    return " ".join(sorted({path.name for path in Path("/dev").iterdir()} - DEVICES))


def no_engine_socket() -> str:
    places = ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock")
    return " ".join(place for place in places if Path(place).exists())


def proc_masked() -> str:
    null = Path("/dev/null").stat().st_rdev
    seen = [str(path) for path in MASKED if path.exists() and path.stat().st_rdev != null]
    firmware = Path("/sys/firmware")
    seen += [str(firmware)] if firmware.is_dir() and any(firmware.iterdir()) else []
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    closed = {line.split()[4] for line in mounts if "ro" in line.split()[5].split(",")}
    return " ".join(seen + [place for place in ("/proc/sys", "/proc/bus") if place not in closed])


def no_process_of_the_host() -> str:
    count = sum(path.name.isdigit() for path in Path("/proc").iterdir())
    return "" if count <= 8 else f"{count} processes"


def memory() -> str:
    child = os.fork()
    if child == 0:
        bytearray(2 * CAPS["memory"] * MIB)[:] = b"x" * (2 * CAPS["memory"] * MIB)
        os._exit(0)
    ended = os.waitpid(child, 0)[1]
    return "" if os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL else f"{ended}"


def processes() -> str:
    children = []
    try:
        for _ in range(2 * CAPS["pids"]):
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except BlockingIOError:
        return ""
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return f"{len(children)} at once"


def threads() -> str:
    gate = threading.Event()
    try:
        for _ in range(2 * CAPS["pids"]):
            threading.Thread(target=gate.wait).start()
    except RuntimeError:
        return ""
    finally:
        gate.set()
    return "no limit"


def processor_time() -> str:
    root = Path("/sys/fs/cgroup")
    if (root / "cpu.max").exists():
        quota, period = (root / "cpu.max").read_text().split()
    else:
        quota, period = ((root / f"cpu/cpu.cfs_{n}_us").read_text() for n in ("quota", "period"))
    held = quota.strip() not in ("max", "-1") and int(quota) / int(period) == CAPS["cpus"]
    return "" if held else f"quota {quota.strip()}"


def fills(folder: str, cap: int) -> str:
    """Whether more than `cap` MiB go into `folder`, in files smaller than a file may be."""
    paths = [Path(folder, f".cage-{number}") for number in range(2 * cap)]
    try:
        for path in paths:
            path.write_bytes(bytes(MIB))
    except OSError as error:
        return "" if "No space left" in str(error) else str(error)
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
    return f"{2 * cap} MiB fit into {folder}"


def disk_of_tmp() -> str:
    return fills("/tmp", CAPS["tmp"])


def shared_memory() -> str:
    return fills("/dev/shm", CAPS["shm"])


def disk_of_workspace() -> str:
    return fills("/workspace", CAPS["work"])


def disk_of_output() -> str:
    return fills("/out", CAPS["out"])


def size_of_a_file() -> str:
    path = Path("/workspace/.cage-large")
    path.touch()
    try:
        # Sparse: the size counts, not what is on the disk.
        os.truncate(path, 2 * CAPS["file"] * MIB)
    except OSError as error:
        return "" if "File too large" in str(error) else str(error)
    finally:
        path.unlink()
    return "no limit"


def open_files() -> str:
    with contextlib.ExitStack() as stack:
        try:
            for _ in range(2 * OPEN_FILES):
                stack.enter_context(Path("/dev/null").open())
        except OSError as error:
            return "" if "Too many open files" in str(error) else str(error)
    return "no limit"


def no_core_dump() -> str:
    found = resource.getrlimit(resource.RLIMIT_CORE)
    return "" if found == (0, 0) else str(found)


ASSERTIONS = {
    function.__name__: function
    for function in (
        no_route, no_name_server, not_root, no_capability, no_new_privileges,
        system_calls_filtered, no_other_place_to_write, data_read_only, no_device,
        no_engine_socket, proc_masked, no_process_of_the_host, memory, processes, threads,
        processor_time, disk_of_tmp, shared_memory, disk_of_workspace, disk_of_output,
        size_of_a_file, open_files, no_core_dump,
    )
}  # fmt: skip


def main(names: list[str]) -> None:
    for name in names or ASSERTIONS:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            print(name, ASSERTIONS[name](), sep="\t", flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            print(name, "could not be tried", sep="\t")


if __name__ == "__main__":
    main(sys.argv[1:])
