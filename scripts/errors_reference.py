"""Write the page of errors, docs/reference/errors.md, from the classes of errors and `errors_reference.toml`.

    python scripts/errors_reference.py            write the page anew
    python scripts/errors_reference.py --check    exit with 1 if the page is not what would be written

Each class has a heading, which is its anchor. What happened is its docstring; the file beside this script adds why it
happens and what to do. `EXAMPLES` are errors as people meet them: their text is on the page as it is shown.
"""

import importlib
import inspect
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import mcpbridge
from mcpbridge.base import errors
from mcpbridge.base.errors import BridgeError, ConfigError

PAGE = Path(__file__).resolve().parents[1] / "docs/reference/errors.md"
EXPLAINED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""By name of the class: `why`, `do`, and `settings` if any have to do with it."""

ELSEWHERE = (
    "app.admin.http_client",
    "catalog.search.embeddings.embedder",
    "catalog.search.service",
    "config.trust.decisions",
    "core.elicitation",
    "downstream.http.exchange",
    "engine.registry.http_rules",
    "engine.requests",
    "library.calls.call",
    "library.calls.run_events",
    "pipeline.roles.quotas",
    "sandbox.fetch.fetch",
    "upstream.auth.http",
)
"""Modules with classes of errors beside `base/errors.py`."""

HEAD = """\
# Errors

Every error of the bridge: what happened, why, whether the call took effect, and what to do. Find yours by its class
or by its text.

A tool call that fails is a result with `isError`: its text is the message, then what to do. Programs find the name of
the class in `_meta["mcpbridge/error"]`. Commands print the message, what to do, and a link to this page. An error that
is "a kind of" another one is caught with it. Classes without another address are in `mcpbridge.base.errors`, and the
common ones in `mcpbridge`.
"""

_FAILED = """\
The message names the server, and each entry says whether the call may have taken effect. `mcpbridge call` ends with
exit code 4, with 7 after a timeout, and with 5 if the server itself answered with an error."""

SECTIONS: dict[type[BridgeError], tuple[str, str]] = {
    errors.CallRefused: (
        "Refused by the bridge",
        "Nothing was sent to a server, so the call had no effect. `mcpbridge call` ends with exit code 5.",
    ),
    errors.UpstreamError: ("Failed at a server", _FAILED),
    ConfigError: (
        "Wrong configuration",
        "A command starts nothing, and ends with exit code 2. A bridge that runs keeps the configuration that it has.",
    ),
    BridgeError: (
        "Other errors",
        "Most of these reach programs that use the library.",
    ),
}
"""The branches of the tree: title, and what is common to all in it."""

EXAMPLES = (
    errors.UnknownName("tool", "git_statsu", candidates=["git__git_status"]),
    errors.Overloaded("Server 'db' was busy for 10 s with 16 calls"),
    errors.RateLimited("Server 'github'", "30/min", 12),
    errors.LimitUnavailable("The budget of this conversation cannot be counted now"),
    errors.UpstreamUnavailable("web", "retrying in 4 s: connection refused"),
    errors.UpstreamResting("db", 8, is_probed=False),
    errors.UpstreamGone("db", "the connection ended during the call: exit code 3: disk full"),
    errors.UpstreamTimeout("db", 60),
    errors.UpstreamGarbled("db", "its answer cannot be read: unexpected end of data"),
    errors.UpstreamHttpError("docs", 429, "HTTP 429 Too Many Requests", retry_after=30),
    errors.SessionExpired("docs"),
    errors.SignInNeeded("linear"),
    errors.UrlRequired("bank", ["https://bank.example.com/agree"]),
    errors.AnswerTooLarge(3 << 20, 1 << 20),
    errors.ValueTooLarge(2_000_000, 1_000_000),
    ConfigError("unknown key", file="servers.toml:2", key="servers.time.comand", hint="Did you mean `command`?"),
)
"""What people read, for classes whose text says more than their docstring."""


def classes() -> set[type[BridgeError]]:
    """Every class of errors whose name is not private."""
    for module in ELSEWHERE:
        importlib.import_module(f"mcpbridge.{module}")
    return {one for one in (BridgeError, *below(BridgeError)) if not one.__name__.startswith("_")}


def below(root: type[BridgeError]) -> Iterator[type[BridgeError]]:
    """The classes below one, in the order of the files, each before those below it."""
    for one in root.__subclasses__():
        if one.__module__.startswith("mcpbridge.") and not one.__name__.startswith("_"):
            yield one
            yield from below(one)


def entry(one: type[BridgeError]) -> str:
    """The part of the page about one class."""
    explained = EXPLAINED[one.__name__]
    happened = " ".join((inspect.getdoc(one) or "").split())
    base = one.__mro__[1]
    kind = f" A kind of [{base.__name__}](#{base.__name__.lower()})." if base not in SECTIONS else ""
    public = one.__module__ == errors.__name__ or one.__name__ in mcpbridge.__all__
    where = "" if public else f" In `{one.__module__}`."
    parts = [f"### {one.__name__}", f"{happened}{kind}{where}"]
    parts += [_quoted(example) for example in EXAMPLES if type(example) is one]
    parts += [f"**Why:** {explained['why']}", f"**What to do:** {explained['do']}"]
    if settings := explained.get("settings"):
        parts.append(f"**Settings:** {settings}")
    return "\n\n".join(parts) + "\n"


def _quoted(example: BridgeError) -> str:
    lines = (str(example) if isinstance(example, ConfigError) else example.full_message()).splitlines()
    return "\n".join(f"> {line.strip()}{'  ' if line != lines[-1] else ''}" for line in lines)


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    known = classes()
    shown = {BridgeError}
    for root, (title, common) in SECTIONS.items():
        parts.append(f"## {title}\n\n{common}\n")
        for one in (root, *below(root)):
            if one not in shown:
                shown.add(one)
                parts.append(entry(one))
    assert shown == known
    return "\n".join(parts)


def main() -> int:
    """Write the page, or compare it."""
    text = page()
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text("utf-8") == text:
            return 0
        print(f"{PAGE.name} is not what the classes say: run `make docs`", file=sys.stderr)
        return 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
