"""Where this user's files of mcpbridge are: configuration, state, cache, sockets.

The places are those of platformdirs (XDG on Linux). Its import would take longer than the rest of a start, so they
are written down here, and a test compares them with it. The stdio proxy waits for this module: standard library only,
and `pathlib` only for those who ask for a `Path`.
"""

# for that reason:
# ruff: noqa: PTH111, PTH112, PTH116, PTH118

import os
import sys
from collections.abc import Mapping

from mcpbridge.base.version import __version__

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from hashlib import sha256
    from pathlib import Path
else:  # what `hashlib` would take; it loads OpenSSL first, which takes as long as all that the shim needs
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:  # an interpreter that is built otherwise
        from hashlib import sha256


_ON_MAC = sys.platform == "darwin"
_ON_WINDOWS = sys.platform == "win32"
_DARWIN_USER_TEMP_DIR = 65537
"""Of confstr(3) there; Python has no name for it."""


def runtime_directory(environ: Mapping[str, str]) -> "Path":
    """Sockets and locks of running bridges. It may not exist yet."""
    return _as_path(runtime_path(environ))


def runtime_path(environ: Mapping[str, str]) -> str:
    """`runtime_directory` as text.

    It must be the same for all of a user's programs, or each kind would have a daemon of its own. Many clients hand few
    variables on, neither XDG_RUNTIME_DIR nor TMPDIR: so what these would say is found without them.
    """
    given = environ.get("XDG_RUNTIME_DIR")
    if given and os.path.isdir(given) and os.stat(given).st_uid == os.getuid():  # `sudo -E` hands on somebody else's
        return os.path.join(given, "mcpbridge")
    own = f"/run/user/{os.getuid()}"
    if os.path.isdir(own) and os.access(own, os.W_OK | os.X_OK):
        return os.path.join(own, "mcpbridge")
    return os.path.join(_temporary(), f"mcpbridge-{os.getuid()}")


def config_directory(environ: Mapping[str, str]) -> "Path":
    """The configuration, where no other is named."""
    return _as_path(users_config_path(environ))


def state_directory(environ: Mapping[str, str]) -> "Path":
    """Logs of the daemon, and what else may be thrown away only by people."""
    return _as_path(state_path(environ))


def state_path(environ: Mapping[str, str]) -> str:
    """`state_directory` as text."""
    return _of(environ, "XDG_STATE_HOME", ".local/state", mac="Library/Application Support", windows="LOCALAPPDATA")


def snapshots_path(environ: Mapping[str, str]) -> str:
    """What daemons would answer to the first requests of clients. It may not exist yet."""
    return os.path.join(state_path(environ), "snapshots")


def cache_directory(environ: Mapping[str, str]) -> "Path":
    """What can be made anew: what servers offered last."""
    return _as_path(_of(environ, "XDG_CACHE_HOME", ".cache", mac="Library/Caches", windows="LOCALAPPDATA"))


def daemon_key(config: "Path") -> str:
    """What the socket, the lock and the log of the daemon for this configuration file are named after.

    One daemon serves one configuration; after an upgrade the clients that come get a new one.
    """
    return key_of(str(config))


def key_of(config: str) -> str:
    """`daemon_key` of a path given as text."""
    return sha256(f"{os.path.realpath(config)}\0{__version__}".encode(errors="surrogateescape")).hexdigest()[:16]


def users_config_path(environ: Mapping[str, str]) -> str:
    """`config_directory` as text."""
    return _of(environ, "XDG_CONFIG_HOME", ".config", mac="Library/Application Support", windows="APPDATA")


def _of(environ: Mapping[str, str], variable: str, default: str, *, mac: str, windows: str) -> str:
    if _ON_WINDOWS and environ.get(windows):
        return os.path.join(environ[windows], "mcpbridge")
    if environ.get(variable):
        return os.path.join(environ[variable], "mcpbridge")
    home = environ.get("HOME") or os.path.expanduser("~")
    return os.path.join(home, mac if _ON_MAC else default, "mcpbridge")


def _temporary() -> str:
    """Where this user may put files that nobody keeps, whatever the environment says."""
    if _ON_MAC:
        own = os.confstr(_DARWIN_USER_TEMP_DIR)
        if own and os.path.isdir(own):
            return own.rstrip("/")
    place = "/tmp"  # noqa: S108 - who uses the directory looks whether it is this user's alone
    if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
        return place
    import tempfile

    return tempfile.gettempdir()


def _as_path(text: str) -> "Path":
    from pathlib import Path

    return Path(text)
