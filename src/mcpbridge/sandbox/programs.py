"""What every job may read: the programs and libraries of the system, and the interpreter.

No configuration, no accounts, no home directory: of `/etc` only what the loader, clocks and TLS need. As the
interpreter may lie anywhere, its places are worked out: the environment it runs in, the installation behind that, its
shared libraries, and every hop of the links between them.
"""

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

__all__ = ["DEVICES", "interpreter", "interpreter_links", "interpreter_places", "outermost", "system_places"]

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
