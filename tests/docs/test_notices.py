"""What has to go with every copy of the bridge: its license, and the notice of what it was made from."""

import re
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("LICENSE", "NOTICE")
LOCKS = ("requirements.lock", "requirements-build.lock")


def stages() -> list[str]:
    """The stages of the Dockerfile, each with its lines joined."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return re.split(r"(?m)^FROM ", "\n".join(lines))[1:]


def copied(stage: str) -> dict[str, str]:
    """What a stage takes from the directory, and where to."""
    taken: dict[str, str] = {}
    for line in stage.splitlines():
        words = line.split()
        if words[0] == "COPY" and not any(word.startswith("--from") for word in words):
            sources = [word for word in words[1:-1] if not word.startswith("--")]
            taken |= {source: str(PurePosixPath(words[-1], source)) for source in sources}
    return taken


@pytest.mark.parametrize("name", FILES)
def test_the_container_image_has_it(name: str) -> None:
    """Issue 18, 9. In the last stage, which is the image; the others are left behind."""
    assert copied(stages()[-1])[name] == f"/usr/share/doc/mcpbridge/{name}"


@pytest.mark.parametrize("name", FILES)
def test_the_wheel_in_the_image_has_it(name: str) -> None:
    """`license-files` names both, so the stage that builds the wheel needs both."""
    assert name in copied(stages()[0])
    assert f'"{name}"' in re.findall(r"(?m)^license-files = .*$", (ROOT / "pyproject.toml").read_text())[0]


@pytest.mark.parametrize("name", [*FILES, *LOCKS, "pyproject.toml", "README.md", "src"])
def test_what_the_image_copies_is_let_through_to_the_build(name: str) -> None:
    """`.dockerignore` leaves everything out but what it names."""
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert f"!{name}" in ignored
    assert (ROOT / name).exists()


def test_what_the_image_downloads_with_pip_has_a_hash_in_a_lock() -> None:
    """Issue 22. The bridge itself is installed from its wheel alone; an sdist would download what builds it."""
    installs = re.findall(r"pip install ([^&\n]+)", "\n".join(stages()))
    assert len(installs) == 3
    wheel_only, from_locks = "--no-deps --no-index", "--require-hashes --only-binary :all:"
    assert [line for line in installs if wheel_only not in line and from_locks not in line] == []
    assert {name for line in installs for name in line.split() if name.endswith(".lock")} == {*LOCKS}


def test_the_notice_names_files_that_are_there() -> None:
    named = re.findall(r"\bsrc/[\w./-]+\w", (ROOT / "NOTICE").read_text())
    assert named
    assert [path for path in named if not (ROOT / path).is_file()] == []
