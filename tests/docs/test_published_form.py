"""What people will get once it is published: the wheel, installed from an index, is whole and works (issue 19)."""

import functools
import http.server
import os
import re
import subprocess
import sys
import sysconfig
import threading
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 300
"""For a step, on a slow and loaded machine."""


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ} | variables
    ran = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="the extra `dev` has it: `make` installs it")
    out = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check")
    run(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", out, ROOT, cwd=out)
    [built] = out.glob("mcpbridge-*.whl")
    return built


@contextmanager
def index(wheel: Path, folder: Path) -> Iterator[str]:
    """A simple index (PEP 503) on loopback with this wheel."""
    project = folder / "simple/mcpbridge"
    project.mkdir(parents=True)
    (project / wheel.name).write_bytes(wheel.read_bytes())
    (project / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/simple"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.skipif(os.name != "posix", reason="paths of a POSIX environment")
def test_the_wheel_installed_from_an_index_makes_a_call(wheel: Path, tmp_path: Path) -> None:
    """In an environment that has the packages it depends on, and none of this checkout."""
    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=False, symlinks=True)
    packages = next((fresh / "lib").glob("python*/site-packages"))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    with index(wheel, tmp_path / "index") as address:
        pip = (sys.executable, "-m", "pip", "--python", fresh / "bin/python", "install", "--quiet")
        run(*pip, "--no-deps", "--ignore-installed", "--index-url", address, "mcpbridge", cwd=tmp_path)
    (tmp_path / "mycode.py").write_text(
        'def shout(text: str) -> str:\n    """Say it louder."""\n    return text.upper()\n'
    )
    (tmp_path / "servers.toml").write_text('[tools.shout]\nfunction = "mycode:shout"\n')
    homes = {f"XDG_{one}_HOME": str(tmp_path / one) for one in ("CONFIG", "STATE", "CACHE")} | {"HOME": str(tmp_path)}
    program = fresh / "bin/mcpbridge"
    assert re.fullmatch(r"mcpbridge \d+\.\d+\.\S+\n", run(program, "--version", cwd=tmp_path, **homes))
    called = run(program, "call", "shout", "text=hello", "--config", "servers.toml", cwd=tmp_path, **homes)
    assert called == "HELLO\n"
    where = run(fresh / "bin/python", "-c", "import mcpbridge; print(mcpbridge.__file__)", cwd=tmp_path, **homes)
    assert Path(where.strip()).is_relative_to(fresh), "the checkout was used"
