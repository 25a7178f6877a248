"""Build a release of the last commit into dist/, twice, and compare: python scripts/release/build.py [--out DIR].

dist/ has a wheel, an sdist, what the bridge runs with (`requirements.lock` for pip, `sbom.cdx.json` in CycloneDX), and
`SHA256SUMS` of these. They are built from what the commit has, not from the working directory: what is not committed is
not in them. All times are the commit's. The two builds lie in different directories and must be the same byte for byte.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from sbom import project_version, read_lock, to_text

ROOT = Path(__file__).resolve().parents[2]
SBOM, SUMS = "sbom.cdx.json", "SHA256SUMS"


def commit_time(root: Path) -> int:
    """When the last commit was made, in seconds since 1970."""
    return int(_git(root, "log", "-1", "--format=%ct"))


def build(root: Path, out: Path, seconds: int) -> None:
    """Build the last commit of `root` into `out`, which has to be empty."""
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        archive, source = Path(folder, "source.tar"), Path(folder, "source")
        _git(root, "archive", "--format=tar", f"--output={archive}", "HEAD")
        with tarfile.open(archive) as tar:
            tar.extractall(source, filter="data")
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(seconds)}
        command = (sys.executable, "-m", "hatchling", "build", "--directory", str(out))
        ran = subprocess.run(command, cwd=source, env=environment, check=False, capture_output=True, text=True)
        if ran.returncode:
            raise SystemExit(f"it cannot be built:\n{ran.stdout}{ran.stderr}")
        packages = read_lock((source / "requirements.lock").read_text("utf-8").splitlines())
        shutil.copyfile(source / "requirements.lock", out / "requirements.lock")
        (out / SBOM).write_text(to_text(packages, project_version(source), seconds), "utf-8")
    (out / SUMS).write_text(sums(out), "ascii")


def sums(folder: Path) -> str:
    """The SHA-256 of each file but the list itself, as `sha256sum --check` reads it."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def main() -> int:
    """Build, compare, and put the first build into place."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="DIR", type=Path, default=ROOT / "dist", help="replaced as a whole")
    out: Path = parser.parse_args().out
    seconds = commit_time(ROOT)
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        for built in (first, second):
            built.mkdir()
            build(ROOT, built, seconds)
        if (one := (first / SUMS).read_text()) != (other := (second / SUMS).read_text()):
            print(f"two builds of the same commit differ:\n{one}and\n{other}", file=sys.stderr)
            return 1
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(first, out)
    if _git(ROOT, "status", "--porcelain", "--untracked-files=no"):
        print("There are changes that are not committed. They are not in this release.", file=sys.stderr)
    print(
        f"{_git(ROOT, 'rev-parse', 'HEAD')}, built twice with SOURCE_DATE_EPOCH={seconds}, the same both times:\n{one}",
        end="",
    )
    return 0


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=root, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
