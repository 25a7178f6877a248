"""The names that a program gives its requests: of a run, of a user, of a tenant."""

from mcpbridge.context import short
from mcpbridge.errors import ConfigError

__all__ = ["check_names"]


def check_names(*, run: str = "", user: str = "", tenant: str = "") -> None:
    """Refuse names that would count as none: what a program says by mistake, it should hear.

    Raises:
        ConfigError: one is too long.
    """
    for key, name in (("run", run), ("user", user), ("tenant", tenant)):
        if name and not short(name):
            told = f"it has {len(name)} characters" if isinstance(name, str) else f"it is {type(name).__name__}"  # pyright: ignore[reportUnnecessaryIsInstance] - of programs without types
            raise ConfigError(f"{told}, and a name is a text of at most 200", key=key)
