"""Where this user's files of mcpbridge are. The standard library alone: the shim waits for this module.

The places are those of platformdirs (XDG on Linux), whose import would take longer than the rest of a start; a test
holds them against it.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mcpbridge._version import __version__

__all__ = ["FILE_NAME", "cache_directory", "config_directory", "daemon_key", "runtime_directory", "state_directory"]

FILE_NAME = "servers.toml"

_ON_MAC = sys.platform == "darwin"
_ON_WINDOWS = sys.platform == "win32"


def runtime_directory(environ: Mapping[str, str]) -> Path:
    """Sockets and locks of running bridges. It may not exist yet."""
    given = environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir():
        return Path(given) / "mcpbridge"
    return Path(tempfile.gettempdir()) / f"mcpbridge-{os.getuid()}"


def config_directory(environ: Mapping[str, str]) -> Path:
    """The configuration, where no other is named."""
    return _of(environ, "XDG_CONFIG_HOME", ".config", mac="Library/Application Support", windows="APPDATA")


def state_directory(environ: Mapping[str, str]) -> Path:
    """Logs of the daemon, and what else may be thrown away only by people."""
    return _of(environ, "XDG_STATE_HOME", ".local/state", mac="Library/Application Support", windows="LOCALAPPDATA")


def cache_directory(environ: Mapping[str, str]) -> Path:
    """What can be made anew: what servers offered last."""
    return _of(environ, "XDG_CACHE_HOME", ".cache", mac="Library/Caches", windows="LOCALAPPDATA")


def daemon_key(config: Path) -> str:
    """What the socket, the lock and the log of the daemon for this configuration file are named after.

    One daemon serves one configuration; after an upgrade the clients that come get a new one.
    """
    return hashlib.sha256(f"{config.resolve()}\0{__version__}".encode()).hexdigest()[:16]


def _of(environ: Mapping[str, str], variable: str, default: str, *, mac: str, windows: str) -> Path:
    if _ON_WINDOWS and environ.get(windows):
        return Path(environ[windows]) / "mcpbridge"
    if environ.get(variable):
        return Path(environ[variable]) / "mcpbridge"
    home = Path(environ.get("HOME") or Path.home())
    return home / (mac if _ON_MAC else default) / "mcpbridge"
