"""The servers behind the bridge: those of the example, and one that is installed here, in its own environment."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from clients.conftest import ROOT, fastmcp_python, installed, newer_node, node, run
from results_real.real_world import World, made

__all__ = ["fastmcp_python", "newer_node", "node"]

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def sql_server() -> str:
    """The program of the SQL server."""
    folder = ROOT / ".venv-sql"
    programs = folder / ("Scripts" if os.name == "nt" else "bin")

    def install() -> None:
        run(sys.executable, "-m", "venv", "--clear", str(folder), cwd=ROOT)
        wanted = str(HERE / "requirements.txt")
        run(str(programs / "python"), "-m", "pip", "install", "--quiet", "-r", wanted, cwd=ROOT)

    installed(folder / ".installed", HERE / "requirements.txt", install)
    return str(programs / "mcp-server-sqlite")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, sql_server: str) -> World:
    """The data, and the servers in front of it: without Node, those that need none."""
    assert (ROOT / ".venv-servers/.ready").exists(), "run `make example` first: it installs the example's servers"
    return made(tmp_path_factory.mktemp("world"), sql_server, has_node=shutil.which("node") is not None)
