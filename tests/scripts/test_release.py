"""A release can be built again: a commit always gives the same files, with a list of what they run with (issue 22)."""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PACKAGE = '''\
# What the bridge runs with.
anyio==4.16.0 \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
    # via mcpbridge (pyproject.toml)
idna==3.20 ; sys_platform == 'linux' \\
    --hash=sha256:{c}
    # via
    #   anyio
    #   mcpbridge (pyproject.toml)
'''.format(a="a" * 64, b="b" * 64, c="c" * 64)  # fmt: skip


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts/release" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up, and `build` imports `sbom`
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def build() -> Iterator[ModuleType]:
    yield load("build")
    del sys.modules["build"]


sbom = load("sbom")


def document(lock: str) -> dict[str, Any]:
    return json.loads(sbom.to_text(sbom.read_lock(lock.splitlines()), "1.2.3", 1_700_000_000))


def test_a_package_has_its_version_its_hashes_and_what_needs_it() -> None:
    bom = document(PACKAGE)
    anyio, idna = bom["components"]
    assert (anyio["name"], anyio["version"], anyio["purl"]) == ("anyio", "4.16.0", "pkg:pypi/anyio@4.16.0")
    [files] = anyio["externalReferences"]
    assert files["hashes"] == [{"alg": "SHA-256", "content": letter * 64} for letter in "ab"]
    assert "properties" not in anyio
    [marker] = idna["properties"]
    assert marker["value"] == "sys_platform == 'linux'"
    assert {one["ref"]: one["dependsOn"] for one in bom["dependencies"]} == {
        "mcpbridge": ["pkg:pypi/anyio@4.16.0", "pkg:pypi/idna@3.20"],
        "pkg:pypi/anyio@4.16.0": ["pkg:pypi/idna@3.20"],
        "pkg:pypi/idna@3.20": [],
    }
    assert bom["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert bom["metadata"]["component"]["version"] == "1.2.3"


def test_everything_in_the_lock_is_in_the_document() -> None:
    bom = document(LOCK)
    pinned = {
        line.split(" ")[0].replace("==", "@") for line in LOCK.splitlines() if "==" in line and line[0] not in " #"
    }
    assert {one["purl"] for one in bom["components"]} == {f"pkg:pypi/{one}" for one in pinned}
    written = [one["content"] for part in bom["components"] for one in part["externalReferences"][0]["hashes"]]
    assert len(written) == LOCK.count("--hash=sha256:")
    needs = {one["ref"]: one["dependsOn"] for one in bom["dependencies"]}
    reached, waiting = set[str](), ["mcpbridge"]
    while waiting:
        if (one := waiting.pop()) not in reached:
            reached.add(one)
            waiting += needs[one]
    assert reached == {"mcpbridge"} | {one["bom-ref"] for one in bom["components"]}


def test_the_same_lock_gives_the_same_document_and_another_one_another_number() -> None:
    assert document(LOCK) == document(LOCK)
    assert document(PACKAGE)["serialNumber"] != document(PACKAGE.replace("3.20", "3.21"))["serialNumber"]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("idna==3.20 ", "idna>=3.20 ", "line 6"),
        (f"    --hash=sha256:{'c' * 64}\n", "", "idna has no hash"),
        ("--hash=sha256:c", "--hash=sha1:c", "line 7"),
        ("idna==3.20 ", "-e . ", "line 6"),
    ],
)
def test_a_lock_that_is_not_whole_is_refused(old: str, new: str, what: str) -> None:
    assert old in PACKAGE
    with pytest.raises(ValueError, match=what):
        document(PACKAGE.replace(old, new))


@given(line=st.text(st.characters(exclude_categories=["Cs", "Zl", "Zp", "Cc"]), min_size=1))
def test_no_line_is_passed_over(line: str) -> None:
    """It is a comment, it belongs to a package, or the lock is refused."""
    try:
        packages = sbom.read_lock([line])
    except ValueError:
        return
    assert packages == []
    assert line.startswith(("#", "    #", "    --hash=sha256:"))


def test_the_locks_have_what_the_project_asks_for() -> None:
    """The image installs the bridge without its dependencies: all of them have to be in the lock."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    asked = {
        "requirements.lock": document["project"]["dependencies"],
        "requirements-build.lock": document["build-system"]["requires"],
    }
    for lock, requirements in asked.items():
        pinned = {one.name: one.version for one in sbom.read_lock((ROOT / lock).read_text("utf-8").splitlines())}
        for requirement in map(Requirement, requirements):
            version = pinned.get(canonicalize_name(requirement.name))
            assert version is not None, f"run `make lock-dependencies`: {requirement.name} is not in {lock}"
            assert requirement.specifier.contains(version), f"run `make lock-dependencies`: {requirement} in {lock}"


def git(folder: Path, *arguments: str) -> None:
    author = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    dates = {f"GIT_{who}_DATE": "1700000000 +0000" for who in ("AUTHOR", "COMMITTER")}
    subprocess.run(("git", *arguments), cwd=folder, env=os.environ | author | dates, check=True, capture_output=True)


def project(folder: Path) -> Path:
    """A project of two modules, committed."""
    files = {
        "pyproject.toml": '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "mcpbridge"\nversion = "1.2.3"\nrequires-python = ">=3.11"\n',
        "src/mcpbridge/__init__.py": "",
        "src/mcpbridge/base/version.py": '__version__ = "1.2.3"\n',
        "requirements.lock": PACKAGE,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")
    return folder


def test_a_commit_gives_the_same_files_wherever_it_is_built(build: ModuleType, tmp_path: Path) -> None:
    """Also from a copy whose files have other times and modes. What is not committed is in neither."""
    pytest.importorskip("hatchling", reason="the extra `dev` has it: `make` installs it")
    one, other = (project(tmp_path / name) for name in ("one", "other"))
    (other / "src/mcpbridge/uncommitted.py").touch()
    for path in other.glob("src/**/*.py"):
        path.chmod(0o600)
        os.utime(path, (1, 1))
    outs = (tmp_path / "first", tmp_path / "second")
    for root, out in zip((one, other), outs, strict=True):
        out.mkdir()
        assert build.commit_time(root) == 1_700_000_000
        build.build(root, out, 1_700_000_000)
    first, second = ({path.name: path.read_bytes() for path in out.iterdir()} for out in outs)
    assert first == second
    assert {*first} == {
        "SHA256SUMS",
        "mcpbridge-1.2.3-py3-none-any.whl",
        "mcpbridge-1.2.3.tar.gz",
        "requirements.lock",
        "sbom.cdx.json",
    }
    listed = dict(reversed(line.split("  ")) for line in first.pop("SHA256SUMS").decode().splitlines())
    assert listed == {name: hashlib.sha256(data).hexdigest() for name, data in first.items()}
    assert "uncommitted" not in " ".join(zipfile.ZipFile(outs[1] / "mcpbridge-1.2.3-py3-none-any.whl").namelist())
    with tarfile.open(outs[0] / "mcpbridge-1.2.3.tar.gz") as tar:
        assert {member.mtime for member in tar if member.isfile()} == {1_700_000_000}
