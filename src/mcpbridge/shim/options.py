"""The command line of `mcpbridge serve`, as far as a shim understands it. Pure."""

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Options", "read_options"]

_LEVELS = frozenset({"debug", "info", "warning", "error", "critical"})


class Options:
    """What was given; the rest is empty."""

    __slots__ = ("config", "log_level", "profile", "project", "server")

    def __init__(self) -> None:
        self.config = self.log_level = self.profile = self.project = self.server = ""


def read_options(arguments: "Sequence[str]") -> Options | None:
    """The options in `arguments`. None: there is something else, or something is wrong, which others tell better."""
    options, words = Options(), iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        field = name.removeprefix("--").replace("-", "_")
        if not name.startswith("--") or "_" in name or field not in Options.__slots__:
            return None
        value = value if equals else next(words, "")
        if not value or (not equals and value.startswith("-")):
            return None
        setattr(options, field, value)
    if options.server and options.profile:
        return None
    return options if not options.log_level or options.log_level in _LEVELS else None
