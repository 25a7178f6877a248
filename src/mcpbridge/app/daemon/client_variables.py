"""What of a client's environment the daemon takes over: variables, and where programs are. Pure.

The daemon has the environment of whoever started it, often without the variables that the configuration names: a
service of the system has nearly none. A client that has them fills them in; what is there already stays, so that no
client can change a server of the others. So it is with proxies, certificates and package indexes, without which no
server starts in a company's network. It is the same with the directories of `PATH`: a client that was started from a
desktop has few, and one from a terminal knows where `npx` is; its further ones come last.
"""

import os
from collections.abc import Iterable, Mapping

from mcpbridge.base.process.environment import network_variables

_MOST_PLACES = 200
"""Directories in a PATH that is added to."""


def adopted(missing: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The missing variables that this environment has."""
    return {name: environ[name] for name in sorted(missing) if name in environ}


def more_network(own: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Their proxies, certificates and package indexes that we lack in any spelling; none that carries a password."""
    known = {name.upper() for name in own}
    return {name: value for name, value in sorted(network_variables(theirs).items()) if name.upper() not in known}


def more_places(own: str, theirs: str) -> str | None:
    """Our `PATH` with the absolute directories of theirs that it lacks, at its end. None: it lacks none."""
    places = own.split(os.pathsep) if own else []
    more = [place for place in dict.fromkeys(theirs.split(os.pathsep)) if place.startswith("/") and place not in places]
    if not more or len(places) + len(more) > _MOST_PLACES:
        return None
    return os.pathsep.join([*places, *more])
