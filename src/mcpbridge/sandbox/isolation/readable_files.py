"""The files that every job may read: programs and libraries of the system, the interpreter, and what a program needs.

No configuration, no accounts, no home directory: of `/etc` only what the loader, clocks and TLS need. As the
interpreter may lie anywhere, its places are worked out: the environment it runs in, the installation behind that, its
shared libraries, and every hop of the links between them.

People keep programs in virtual environments, in prefixes of version managers and in `node_modules`, and name them by
links and scripts that lead there. So `brought_along` works out the narrowest directories with which a program runs,
never a home directory. What it reads besides (its settings, packages installed in place from elsewhere, caches) is for
the user to allow.
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices that every job may use."""

_PLACES = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/etc/ld.so.cache",
    "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path",
    "/etc/alternatives", "/etc/localtime", "/etc/mime.types", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted",
)  # fmt: skip
_FOR_THE_NETWORK = (
    "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services",
    "/etc/protocols",
)  # fmt: skip


def system_places(*, network: bool) -> tuple[str, ...]:
    """Those of the system's places that are there."""
    places = _PLACES + _FOR_THE_NETWORK if network else _PLACES
    return tuple(place for place in places if Path(place).exists())


def interpreter() -> str:
    """The file of the interpreter, without links."""
    return str(Path(sys.executable).resolve())


@cache
def interpreter_places() -> tuple[str, ...]:
    """Directories that the interpreter needs; of one that holds more than it, such as `~/.local`, those within."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and (libraries := sysconfig.get_config_var("LIBDIR")):
        prefixes.add(str(libraries))
    whole = {*prefixes, *(str(Path(place).resolve()) for place in prefixes)}
    own = {place for place in whole if not _holds_more(place)}
    own |= {str(Path(place, name)) for place in whole - own for name in ("bin", "lib", "lib64") if place != "/"}
    return outermost(place for place in own if Path(place).is_dir())


@cache
def interpreter_links() -> tuple[tuple[str, str], ...]:
    """The links between the command that started us and the interpreter that lie elsewhere, and where they lead."""
    places = interpreter_places()
    links = [hop for hop in _hops(sys.executable) if Path(hop).is_symlink()]
    apart = [hop for hop in links if len(outermost((*places, hop))) > len(places)]
    return tuple((hop, str(Path(hop).readlink())) for hop in apart)


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that are in none of the others, sorted."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not kept or not (path == kept[-1] or path.startswith(kept[-1].rstrip("/") + "/")):
            kept.append(path)
    return tuple(kept)


def _hops(path: str) -> Iterator[str]:
    """The file, and whatever it links to, one after the other."""
    for _ in range(40):
        yield path
        if not Path(path).is_symlink():
            return
        path = os.path.normpath(Path(path).parent / Path(path).readlink())


def _holds_more(place: str) -> bool:
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - a Path raises where nobody knows it
    return Path(place) in (home / ".local", home, *home.parents)


SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""What every sandbox shows."""

_DEEPEST = 6
"""Scripts that lead to scripts."""
_SHALLOW = 2
"""Parts of a path such as `/opt`, which holds more than one installation."""
_LONGEST_LINE = 512
"""Bytes of the line that names the program which reads a script."""


def brought_along(program: str, path: str) -> tuple[str, ...]:
    """Absolute paths of files and directories, without those of the system. `program`: absolute; `path`: a PATH."""
    found: dict[str, None] = {}
    for place in _leading(Path(os.path.normpath(program)), path, 0):
        if not any(place.is_relative_to(root) for root in SYSTEM):
            found[str(place)] = None
    return tuple(one for one in found if not any(one != other and _is_in(one, other) for other in found))


def _is_in(one: str, other: str) -> bool:
    return Path(one).is_relative_to(other)


def _leading(program: Path, path: str, depth: int) -> Iterator[Path]:
    """The file, all that its links pass through, where these are installed, and the same of what reads it."""
    if depth > _DEEPEST:
        return
    real = Path(os.path.realpath(program))
    for place in dict.fromkeys((program, *_links(program), real)):
        yield from _installation(place, path, depth)
    reader = _reader(real, path)
    if reader is not None:
        yield from _leading(reader, path, depth + 1)


def _links(program: Path) -> Iterator[Path]:
    """What a link leads to, step by step."""
    for _ in range(_DEEPEST):
        try:
            target = program.readlink()
        except OSError:
            return
        program = Path(os.path.normpath(program.parent / target))
        yield program


def _installation(file: Path, path: str, depth: int) -> Iterator[Path]:
    modules = [one for one in file.parents if one.name == "node_modules"]
    if modules:
        yield modules[-1]
        return
    prefix = file.parent.parent
    settings = prefix / "pyvenv.cfg"
    if settings.is_file():
        yield prefix
        if home := _home_of(settings):
            base = Path(home) / "python3"
            yield from _leading(base if base.exists() else Path(home) / "python", path, depth + 1)
    elif _is_prefix(file.parent, prefix):
        yield prefix
    else:
        yield file


def _is_prefix(directory: Path, prefix: Path) -> bool:
    """Whether what is installed here is all that `prefix` holds."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - `Path.home` raises where there is none
    if prefix == home / ".local" or home.is_relative_to(prefix) or len(prefix.parts) <= _SHALLOW:
        return False
    if directory.name == "shims":  # of a version manager: scripts that look for the version
        return True
    return directory.name in ("bin", "sbin") and any((prefix / name).is_dir() for name in ("lib", "lib64", "libexec"))


def _home_of(settings: Path) -> str:
    """Where the Python is that a virtual environment was made from."""
    try:
        for line in settings.read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home":
                return value.strip()
    except OSError:
        pass
    return ""


def _reader(script: Path, path: str) -> Path | None:
    """The program that reads a script; None if it is none."""
    try:
        with script.open("rb") as file:
            line = file.readline(_LONGEST_LINE)
    except OSError:
        return None
    if not line.startswith(b"#!"):
        return None
    words = line[2:].decode("utf-8", "replace").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        found = shutil.which(words[0], path=path) if words else None
        return Path(found) if found else None
    return Path(words[0]) if words and words[0].startswith("/") else None
