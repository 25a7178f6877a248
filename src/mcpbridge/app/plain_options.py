"""The options of `serve` and `daemon` as programs write them, read without `argparse`.

Clients wait for these commands, and `argparse` costs 7 ms and 0.4 MiB. It reads what is not plain, explains what is
wrong, and prints the help.
"""

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Options = Mapping[str, Mapping[str, Any]]
    """What `ArgumentParser.add_argument` takes, by option (`--log-level`). Without `help` it is not shown to people."""

LEVELS = ("debug", "info", "warning", "error", "critical")
"""Of the log."""
SWITCH = "switch"
"""The action of an option that is also there as `--no-…`."""


class Given:
    """What was given, by option with `_` for `-`: `log_level`. The others have their default."""

    def __init__(self, options: "Options") -> None:
        for name, how in options.items():
            setattr(self, _field(name), how.get("default", False if "action" in how else None))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def read_plain(arguments: "Sequence[str]", options: "Options") -> Given | None:
    """What was given, as `argparse` would have it. None: it has to look."""
    given, words = Given(options), iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        how = options.get(name)
        if how is None or "nargs" in how:
            return None
        field, action = _field(name), how.get("action")
        if action in ("store_true", SWITCH):
            if equals:
                return None
            setattr(given, field, True)
            continue
        value = value if equals else next(words, "")
        if value in ("", "--") or (not equals and value.startswith("-")) or value not in how.get("choices", (value,)):
            return None
        try:
            read = how.get("type", str)(value)
        except ValueError:
            return None
        setattr(given, field, [*getattr(given, field), read] if action == "append" else read)
    return given


def read_options(arguments: "Sequence[str]", options: "Options", parser: "Callable[[], ArgumentParser]") -> Given:
    """What was given. Ends the program with an explanation if it is wrong, or with the help that was asked for."""
    return read_plain(arguments, options) or parser().parse_args(arguments, Given(options))


def parser_of(options: "Options", **about: "Any") -> "ArgumentParser":
    """The parser of all that may be given. `about`: what `ArgumentParser` takes."""
    from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, RawDescriptionHelpFormatter

    parser = ArgumentParser(formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False, **about)
    for name, how in options.items():
        given: dict[str, Any] = {"help": SUPPRESS, **how}
        if given.get("action") == SWITCH:
            given |= {"action": BooleanOptionalAction, "default": False}
        parser.add_argument(name, **given)
    return parser


def _field(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")
