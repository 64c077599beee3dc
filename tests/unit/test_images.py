"""What an image is built from: contexts, hashes, pins, the host's CA bundle and mirror."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from orchestrator.config import CHECKOUT
from orchestrator.errors import ImageBuildFailed, ImageMissing, NotEnoughSpace
from orchestrator.sandbox import buildx, ca, image, rootfs

FORBIDDEN = re.compile(
    r"(^|/)(holdout|runs|\.git|\.venv|__pycache__)(/|$)|\.pyc$|key", re.IGNORECASE
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("app/main.py", "app/sub/more.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    return tmp_path


def test_every_image_stands_after_its_base() -> None:
    seen = {image.ROOT}
    for name in image.names(optional=True):
        assert image.definition(name).base in seen
        seen.add(name)


def test_every_image_has_its_dockerfile_and_starts_from_the_given_base() -> None:
    for name in image.names(optional=True):
        text = image.definition(name).context.files["Dockerfile"].read_text()
        assert "\nARG BASE\nFROM ${BASE}\n" in text
        assert re.findall(r"^USER (.*)$", text, re.MULTILINE)[-1] == "10001:10001"


def test_no_image_can_hold_a_key_a_record_or_history() -> None:
    for name in image.names(optional=True):
        for inside, source in image.definition(name).context.files.items():
            assert not FORBIDDEN.search(inside), inside
            assert not source.is_symlink()
            assert "holdout" not in source.relative_to(CHECKOUT).parts


def test_an_optional_image_is_named_on_request_only() -> None:
    assert "llama-server" not in image.names()
    assert set(image.names(optional=True)) - set(image.names()) == {"llama-server", "aider"}


def test_an_unknown_image_is_told_with_those_that_exist() -> None:
    with pytest.raises(ImageMissing, match="no image 'tool'; there are base, tools"):
        image.definition("tool")


def test_pins_carry_digests_and_stand_equal_wherever_they_are_repeated() -> None:
    pins = image.pins()
    upstream, ollama = pins["root"]["upstream"], pins["ollama"]["image"]
    for pin in (upstream, ollama):
        assert re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", pin)
    compose = (CHECKOUT / "compose.yaml").read_text()
    assert re.findall(r"image: (ollama/\S+)", compose) == [ollama]
    assert re.findall(r"ORCH_BASE:-([^}]+)}", compose) == [upstream]
    orch = (CHECKOUT / "images/orch/Dockerfile").read_text()
    assert re.findall(r"^ARG BASE=(.*)$", orch, re.MULTILINE) == [upstream]


def test_every_locked_package_has_hashes_and_no_lock_names_an_index() -> None:
    locks = [CHECKOUT / "requirements.lock", *CHECKOUT.glob("images/*/requirements.lock")]
    assert len(locks) == 6
    locks += CHECKOUT.glob("images/*/weights.lock")
    for lock in locks:
        text = lock.read_text()
        assert "://" not in text
        joined = text.replace("\\\n", " ")
        for line in joined.splitlines():
            if line and not line.startswith("#"):
                assert "==" in line and "--hash=sha256:" in line, f"{lock}: {line[:60]}"


def test_images_install_the_versions_that_the_project_is_tested_with() -> None:
    def versions(lock: Path) -> dict[str, str]:
        return dict(re.findall(r"^([\w.-]+)==([\w.]+)", lock.read_text(), re.MULTILINE))

    tested = versions(CHECKOUT / "requirements.lock")
    locks = set(CHECKOUT.glob("images/*/requirements.lock"))
    apart = {CHECKOUT / "images/aider/requirements.lock"}
    assert apart < locks
    for lock in locks - apart:
        assert versions(lock).items() <= tested.items()


def test_the_build_backend_is_locked_as_pyproject_asks() -> None:
    (backend,) = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["build-system"][
        "requires"
    ]
    assert f"\n{backend} " in (CHECKOUT / "requirements.lock").read_text()


def test_the_context_of_compose_admits_only_what_the_image_is_made_of() -> None:
    lines = (CHECKOUT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    admitted = {line[1:] for line in rules if line.startswith("!")}
    assert admitted == {
        "pyproject.toml", "README.md", "orchestrator", "tasks", "images", "scripts/apt-suite",
    }  # fmt: skip
    assert {"**/holdout", "**/runs", "**/.git"} <= set(rules[1 + len(admitted) :])


def test_a_context_leaves_out_what_must_never_enter(tree: Path) -> None:
    for name in (".git/config", "holdout/key.csv", "runs/t/run.json", "__pycache__/main.pyc"):
        (tree / "app" / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / "app" / name).write_text("x")
    (tree / "secret").write_text("x")
    (tree / "app" / "link.py").symlink_to(tree / "secret")
    assert sorted(buildx.context({"app": tree / "app"}).files) == ["app/main.py", "app/sub/more.py"]


def test_a_context_is_laid_out_with_equal_modes_and_times(tree: Path, tmp_path: Path) -> None:
    (tree / "app/main.py").chmod(0o700)
    target = tmp_path / "laid"
    buildx.context({"app": tree / "app"}).write(target)
    stat = (target / "app/main.py").stat()
    assert (stat.st_mode & 0o777, stat.st_mtime) == (0o644, buildx.SOURCE_DATE_EPOCH)


@pytest.mark.parametrize("change", ["content", "name", "new"])
def test_the_hash_of_a_context_tells_each_change(tree: Path, change: str) -> None:
    before = buildx.context({"app": tree / "app"}).sha256()
    if change == "content":
        (tree / "app/main.py").write_text("# other\n")
    elif change == "name":
        (tree / "app/main.py").rename(tree / "app/other.py")
    else:
        (tree / "app/new.py").write_text("")
    assert buildx.context({"app": tree / "app"}).sha256() != before


def test_the_hash_of_a_context_counts_neither_times_nor_modes(tree: Path) -> None:
    before = buildx.context({"app": tree / "app"}).sha256()
    (tree / "app/main.py").chmod(0o755)
    (tree / "app/main.py").touch()
    assert buildx.context({"app": tree / "app"}).sha256() == before


def test_a_full_disk_is_told_from_other_failures() -> None:
    full = buildx.failure("tools", 1, ["#5 write /x: no space left on device", "ERROR: failed"])
    assert isinstance(full, NotEnoughSpace)
    assert "no space for the image tools" in str(full)


def test_an_unknown_certificate_is_told_with_the_mend() -> None:
    failed = buildx.failure("agent", 1, ["SSLError: CERTIFICATE_VERIFY_FAILED self-signed"])
    assert isinstance(failed, ImageBuildFailed)
    assert "ORCH_CA_BUNDLE" in str(failed)


def test_a_failure_ends_with_the_last_words_of_the_build() -> None:
    failed = buildx.failure("agent", 17, [f"line {n}" for n in range(40)])
    assert isinstance(failed, ImageBuildFailed)
    assert str(failed).startswith("building image agent failed (exit 17)")
    assert "line 39" in str(failed)
    assert "line 10" not in str(failed)


def test_the_bundle_named_first_is_taken_and_an_empty_one_passed_over(tmp_path: Path) -> None:
    empty, full = tmp_path / "empty.pem", tmp_path / "full.pem"
    empty.touch()
    full.write_text("certificates")
    named = {"ORCH_CA_BUNDLE": str(empty), "SSL_CERT_FILE": str(tmp_path / "gone"),
             "PIP_CERT": str(full)}  # fmt: skip
    assert ca.bundle(named) == full
    assert ca.bundle({"ORCH_CA_BUNDLE": str(full), "SSL_CERT_FILE": "/elsewhere"}) == full


def test_there_is_always_a_bundle() -> None:
    assert ca.bundle({}).stat().st_size > 0


def test_proxies_are_found_in_either_case() -> None:
    found = ca.proxies({"HTTP_PROXY": "http://p:1", "https_proxy": "http://q:2", "no_proxy": ""})
    assert found == {"http_proxy": "http://p:1", "https_proxy": "http://q:2"}


@pytest.mark.parametrize(
    ("system", "sources", "expected"),
    [
        ("ID=debian\n", "Types: deb\nURIs: http://m.example/debian\nSuites: x\n", "http://m.example/debian"),
        ("ID=debian\n", "deb http://m.example/debian/ bookworm main\n", "http://m.example/debian"),
        ('ID="debian"\n', "deb [signed-by=/k arch=amd64] https://m.example/a/debian x main\n", "https://m.example/a/debian"),
        ("ID=debian\n", "URIs: http://m.example/debian-security\n", None),
        ("ID=debian\n", "deb http://user:word@m.example/debian bookworm main\n", None),
        ("ID=ubuntu\nID_LIKE=debian\n", "deb http://m.example/debian x main\n", None),
        ("ID=debian\n", "", None),
    ],
)  # fmt: skip
def test_packages_come_from_the_mirror_the_machine_uses(
    system: str, sources: str, expected: str | None
) -> None:
    assert rootfs.mirror(system, sources) == expected
