"""The clients that need an installation: made once, beside the repository's own environment.

Node is the only thing that may be missing; then the Node clients are skipped and the reason is shown.
Everything else that fails to install fails the tests.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

INSPECTOR_NEEDS = (22, 19)
"""The oldest Node that runs the inspector."""


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Test processes that run side by side install one after the other; all but the first find it done."""
    with (Path(tempfile.gettempdir()) / f"mcpbridge-clients-{os.getuid()}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(*command: str, cwd: Path) -> None:
    """Run an installer; show what it said when it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}"


def installed(stamp: Path, wanted: Path, install: Callable[[], None]) -> None:
    """Install if the stamp does not carry what the file `wanted` says now."""
    with one_at_a_time():
        if not stamp.exists() or stamp.read_text() != wanted.read_text():
            install()
            stamp.write_text(wanted.read_text())


@pytest.fixture(scope="session")
def node() -> Path:
    """The folder with the Node clients, installed as its lock file says."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node is not installed: the TypeScript clients and the inspector cannot be tried")
    folder = HERE / "node"
    command = ("npm", "ci", "--no-audit", "--no-fund")
    installed(folder / "node_modules" / ".installed", folder / "package-lock.json", lambda: run(*command, cwd=folder))
    return folder


@pytest.fixture(scope="session")
def newer_node(node: Path) -> str:
    """A Node that is new enough for the inspector: the one installed, else the one from its npm package."""
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(int(part) for part in version.strip().lstrip("v").split(".")[:2]) >= INSPECTOR_NEEDS:
        return "node"
    return str(node / "node_modules" / ".bin" / "node")


@pytest.fixture(scope="session")
def fastmcp_python() -> str:
    """A Python with FastMCP, in an environment of its own: its dependencies are not the bridge's."""
    folder = ROOT / ".venv-clients"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def install() -> None:
        run(sys.executable, "-m", "venv", "--clear", str(folder), cwd=ROOT)
        run(str(python), "-m", "pip", "install", "--quiet", "-r", str(HERE / "requirements.txt"), cwd=ROOT)

    installed(folder / ".installed", HERE / "requirements.txt", install)
    return str(python)
