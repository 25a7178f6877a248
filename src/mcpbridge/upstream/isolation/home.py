"""The home directory of a server in the sandbox: its own, in the state directory, and kept between starts.

What a program keeps there (a cache, a sign-in) is found again at its next start. Another server does not see it, and
neither does another program that is configured under the same name.
"""

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from mcpbridge.base.directories import state_directory

_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 60
"""Characters of a server's name that are in the name of its directory."""


def home_of(server: str, program: str, environ: Mapping[str, str]) -> Path:
    """Where the home directory of a server is; it may not exist yet. `program`: the package or program it runs."""
    name = _UNUSUAL.sub("_", server)[:_LONGEST].lstrip(".") or "_"
    digest = sha256(f"{server}\0{program}".encode(errors="surrogateescape")).hexdigest()[:10]
    return state_directory(environ) / "homes" / f"{name}-{digest}"


def make_home(home: Path) -> str:
    """Make the directory if it is not there. Returns its path without links; nobody but its owner gets into it.

    Raises:
        OSError: it cannot be made.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    real = home.resolve()
    if real.stat().st_uid == os.geteuid():
        real.chmod(0o700)
    return str(real)
