"""Names for the variables and files that secrets are moved to. Pure.

A secret is called what the server's own variable or option is called. Where two servers have different secrets under
one name, each gets the server's name before it; so does one whose name means something else on this machine already.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from mcpbridge.client_files.variables import variable_name

__all__ = ["Moved", "Proposed", "name_secrets"]


@dataclass(frozen=True, slots=True)
class Proposed:
    """A secret of a server, and the name that it would have."""

    server: str
    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Moved:
    """A secret that stands somewhere else now."""

    variable: str
    """The variable, or the file, that holds it."""

    servers: tuple[str, ...]
    value: str = field(repr=False)
    """Never shown."""

    is_set: bool = False
    """It holds that already."""


def name_secrets(
    proposed: Sequence[Proposed], held: Callable[[str], str | None]
) -> tuple[dict[Proposed, str], list[Moved]]:
    """The name of each secret, and what is moved. `held`: what a name holds on this machine by now; None: nothing."""
    values: dict[str, set[str]] = {}
    for one in proposed:
        values.setdefault(one.name, set()).add(one.value)
    taken: dict[str, str] = {}
    names: dict[Proposed, str] = {}
    for one in proposed:
        candidates = _candidates(one, is_shared=len(values[one.name]) > 1)
        name = next(name for name in candidates if taken.get(name, held(name)) in (None, one.value))
        taken[name] = one.value
        names[one] = name
    moved = [
        Moved(
            name,
            tuple(dict.fromkeys(one.server for one, known_as in names.items() if known_as == name)),
            value,
            is_set=held(name) == value,
        )
        for name, value in taken.items()
    ]
    return names, moved


def _candidates(one: Proposed, *, is_shared: bool) -> Iterator[str]:
    prefix = variable_name(one.server)
    longer = one.name if one.name.startswith(prefix) else f"{prefix}_{one.name}"
    if not is_shared or longer == one.name:
        yield one.name
    yield longer
    for number in count(2):
        yield f"{longer}_{number}"
