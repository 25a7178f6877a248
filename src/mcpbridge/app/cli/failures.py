"""How an error ends a command: the message on standard error, and which of the `exit_codes` it means."""

import json
import sys
from collections.abc import Callable
from typing import NoReturn, cast

from mcpbridge.app.cli.server_states import State
from mcpbridge.app.exit_codes import INTERRUPTED, TIMED_OUT, TOOL_ERROR, UNREACHABLE, USAGE
from mcpbridge.base.errors import ERROR_NAME, BridgeError, ConfigError
from mcpbridge.base.masking.known_values import Redactor


class CommandFailed(Exception):
    """Ends a command with an exit code. What went wrong is in the message, what to do about it in `advice`.

    `page`: the page of the docs that explains it; empty: the command's own.
    """

    def __init__(self, code: int, message: str, advice: str = "", *, page: str = "") -> None:
        super().__init__(message)
        self.code, self.advice, self.page = code, advice, page


def fail(code: int, message: str, advice: str = "", *, page: str = "") -> NoReturn:
    """End the command that is running."""
    raise CommandFailed(code, message, advice, page=page)


def only_error(error: BaseException) -> BaseException:
    """What a task group failed with, when that is one thing; else the error as it is."""
    while len(inner := getattr(error, "exceptions", ())) == 1:  # of an exception group
        error = inner[0]
    return error


_REDACT = Redactor()


def report(
    error: BaseException, *, as_json: bool, redact: Callable[[str], str] = _REDACT, command: str = ""
) -> int | None:
    """Say on standard error why the command ends, and return its exit code. None: not an error that people make.

    `command`: its name; empty: the one that click runs.
    """
    error = only_error(error)
    page = ""
    if isinstance(error, CommandFailed):
        code, message, advice, page = error.code, str(error), error.advice, error.page
    elif isinstance(error, ConfigError):
        code, message, advice = USAGE, str(error), error.advice
        page = page_of_key(error.key or "") or error.docs_page
    elif isinstance(error, BridgeError):
        code, message, advice = (
            (TIMED_OUT if isinstance(error, TimeoutError) else UNREACHABLE),
            str(error),
            error.advice,
        )
        page = error.docs_page
    elif isinstance(error, KeyboardInterrupt):
        code, message, advice = INTERRUPTED, "interrupted", ""
    else:
        return None
    if code != INTERRUPTED:
        page = page or page_of(command or _running_command())
    print_error(code, redact(message), redact(advice), page, as_json=as_json)
    return code


def print_error(code: int, message: str, advice: str, page: str, *, as_json: bool) -> None:
    """Say on standard error what went wrong, what to do about it, and which page of the docs explains it."""
    if as_json:
        error = {"code": code, "message": message, "advice": advice, "page": page}
        line = json.dumps({"format": "error/1", "error": error}, ensure_ascii=False)
    else:
        line = "\n  ".join(filter(None, (f"mcpbridge: {message}", advice, page and f"See {page}")))
    print(line, file=sys.stderr)


_TOGETHER = (
    ("up", "down", "restart"),
    ("init", "import", "install", "uninstall"),
    ("add", "remove", "enable", "disable"),
    ("trust", "untrust"),
    ("approvals", "approve", "deny"),
    ("bench routing",),
)
"""Commands that share a section of the page of commands, by its heading; the others have one of their own."""


def page_of(command: str) -> str:
    """The section of the docs about a command; empty if no command is named."""
    shared = [names for names in _TOGETHER if command in " ".join(names).split()]
    section = " ".join(shared[0]) if shared else command
    return f"docs/reference/commands.md#{section.replace(' ', '-')}" if section else ""


_CONFIGURATION = "docs/reference/configuration.md"
_SECTIONS = [
    "accounts",
    "approval",
    "audit",
    "auth",
    "bridge",
    "builtin",
    "cache",
    "call_log",
    "calls",
    "code",
    "console",
    "daemon",
    "expose",
    "fleet",
    "health",
    "hooks",
    "http",
    "limits",
    "log",
    "observe",
    "permissions",
    "questions",
    "results",
    "roles",
    "router",
    "sandbox",
    "search",
    "secrets",
    "store",
    "trust",
]
_OTHER_SECTIONS = {
    **{section: f"{section}name" for section in ("servers", "tools", "profiles")},
    **dict.fromkeys(("spec", "packs"), "spec-and-packs"),
    **dict.fromkeys(("pin", "pin_ignore"), "pin-and-pin_ignore"),
}


def page_of_key(key: str) -> str:
    """The section of the docs about a key of the configuration, such as `servers.git.args`; empty if it is none."""
    if not key or key.startswith("-"):  # an option of a command
        return ""
    section = key.partition(".")[0].partition("[")[0]
    anchor = section if section in _SECTIONS else _OTHER_SECTIONS.get(section, "")
    return f"{_CONFIGURATION}#{anchor}" if anchor else _CONFIGURATION


def _running_command() -> str:
    """The command that click runs, without those within it; empty if it runs none."""
    click = sys.modules.get("click")
    context = click.get_current_context(silent=True) if click is not None else None
    words = str(context.command_path).split() if context is not None else list[str]()
    return words[1] if len(words) > 1 else ""


_CODES = {
    "UpstreamTimeout": TIMED_OUT,
    "UpstreamUnavailable": UNREACHABLE,
    "UpstreamResting": UNREACHABLE,
    "UpstreamGone": UNREACHABLE,
    "UpstreamHttpError": UNREACHABLE,
    "SignInNeeded": UNREACHABLE,
}


def failure_code(marked: object) -> int:
    """The exit code for a failure, from the object (`_meta` or `data`) that may name it."""
    return _CODES.get(_name_of(marked), TOOL_ERROR)


def failure_page(marked: object) -> str:
    """The page of the docs about a failure, from the object that may name it; empty: it does not."""
    name = _name_of(marked)
    return f"{BridgeError.docs_page}#{name.lower()}" if name in _known_errors() else ""


def _name_of(marked: object) -> str:
    return str(cast("State", marked).get(ERROR_NAME)) if isinstance(marked, dict) else ""


def _known_errors() -> frozenset[str]:
    from mcpbridge.base import errors

    return frozenset(
        name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, BridgeError)
    )
