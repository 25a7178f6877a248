"""An image for tests made from the files of this machine, and an engine that can run it; nothing is fetched."""

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

IMAGE = "localhost/mcpbridge-test:1"
SERVER = Path(__file__).parents[1] / "servers" / "boxed_server.py"
ENTRY = '["/python", "-I", "-S", "/server.py"]'
_LEFT_OUT = re.compile(
    r"/(test|tests|idlelib|ensurepip|lib2to3|tkinter|site-packages|dist-packages|config-[^/]*|__pycache__)$"
)

_LIMITS = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]\n'
"""A machine whose own limits are lower than those that Podman asks for runs nothing without them."""
_WITHOUT_UNIFIED = """#!/bin/sh
exec unshare -m sh -c 'umount /sys/fs/cgroup/unified; exec {program} "$@"' {program} "$@"
"""
"""crun runs nothing where both versions of cgroups are mounted; in a view of our own the second one is not."""


class TestEngine(Struct, frozen=True):
    """An engine that has run the image."""

    __test__ = False

    name: str
    env: Mapping[str, str]
    """What has to be in the environment for that."""

    def run(self, *args: str) -> str:
        """What the engine says."""
        ran = subprocess.run(
            [self.name, *args], env={**os.environ, **self.env}, capture_output=True, text=True, timeout=60, check=True
        )
        return ran.stdout

    def containers(self) -> list[str]:
        """The names of all containers of bridges, running or not."""
        return self.run("ps", "--all", "--filter", "label=mcpbridge.machine", "--format", "{{.Names}}").split()


def engine_of(folder: Path) -> TestEngine | str:
    """An engine, Podman first since it needs no service; or why there is none."""
    if not sys.platform.startswith("linux"):
        return "the image is made of files of a Linux machine"
    archive, reasons = folder / "image.tar", list[str]()
    for name, env in _ways(folder):
        if not archive.exists():
            archive.write_bytes(_archive())
        try:
            engine = TestEngine(name, env)
            engine.run("import", "--change", f"ENTRYPOINT {ENTRY}", str(archive), IMAGE)
            engine.run("run", "--rm", "--network=none", "--entrypoint=/python", IMAGE, "-I", "-S", "-c", "print(1)")
        except subprocess.CalledProcessError as error:
            reasons.append(f"{name}: {error.stderr.strip()[-200:]}")
        except (OSError, subprocess.TimeoutExpired) as error:
            reasons.append(f"{name}: {type(error).__name__}")
        else:
            return engine
    return "; ".join(reasons) or "neither docker nor podman is installed"


def _ways(folder: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    program = shutil.which("podman")
    if program is not None:
        yield "podman", {}
        (folder / "containers.conf").write_text(_LIMITS)
        own = {"CONTAINERS_CONF": str(folder / "containers.conf")}
        yield "podman", own
        (folder / "bin").mkdir()
        wrapper = folder / "bin" / "podman"
        wrapper.write_text(_WITHOUT_UNIFIED.format(program=program))
        wrapper.chmod(0o755)
        yield "podman", {**own, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    if shutil.which("docker") is not None:
        yield "docker", {}


def _archive() -> bytes:
    """A file system with this machine's Python, its standard library, and the server."""
    program = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    asked = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    library = subprocess.check_output([program, "-c", asked], text=True).strip()
    linked = subprocess.check_output(["ldd", os.path.realpath(program)], text=True)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for path in set(re.findall(r"/\S+", linked)):
            tar.add(os.path.realpath(path), path)
        tar.add(os.path.realpath(program), "/python")
        tar.add(library, library, filter=lambda one: None if _LEFT_OUT.search(f"/{one.name}") else one)
        tar.add(SERVER, "/server.py")
        for name in ("tmp", "data", "proc", "sys", "dev", "etc"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(folder)
    return data.getvalue()
