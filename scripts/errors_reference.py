"""Write the page of errors, docs/reference/errors.md, from the classes in `base/errors.py`.

    python scripts/errors_reference.py            write the page anew
    python scripts/errors_reference.py --check    exit with 1 if the page is not what would be written

Each class has a heading, which is its anchor, what its docstring says happened, and what to do: its `advice`, or the
line of `ADVICE` here for a class whose advice depends on the case.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from mcpbridge.base import errors
from mcpbridge.base.errors import BridgeError

PAGE = Path(__file__).resolve().parents[1] / "docs/reference/errors.md"

HEAD = """\
# Errors

Every error of the bridge: what happened, whether anything was sent, and what to do. Find yours by its class or by its
text. The page is written from the classes by `scripts/errors_reference.py`; programs import them from
`mcpbridge.base.errors`, the common ones from `mcpbridge`.

A tool call that fails is a result with `isError`: its text is the message, then what to do. Programs find the class's
name in `_meta["mcpbridge/error"]`. Errors below another one are kinds of it: who catches the one catches them all.
"""

SECTIONS: dict[type[BridgeError], tuple[str, str]] = {
    errors.CallRefused: ("Refused by the bridge", "Nothing was sent to a server: the call had no effect."),
    errors.UpstreamError: (
        "Failed at a server",
        "The message names the server. Whether the call took effect is said for each.",
    ),
    BridgeError: (
        "Other errors",
        "Most of these meet programs that use the library, and people who configure the bridge.",
    ),
}
"""The branches of the tree: title, and what is common to all in it."""

ADVICE: dict[type[BridgeError], str] = {
    errors.BadRequest: "The client sent a message that breaks the protocol. Report it to whoever makes the client; "
    "[messages of clients](frames.md) lists the cases.",
    errors.UnknownName: "Use one of the names that the message suggests. A server that is not ready lists "
    "its tools later: "
    "`mcpbridge status`, `mcpbridge list`.",
    errors.ArgumentsRefused: "Make the call again with arguments that fit: the message names each fault and "
    "how it is right.",
    errors.RateLimited: "Wait for the seconds that the message names. The limit is `rate_limit` of the "
    "tool, the server or `[calls]`.",
    errors.AlreadyResumed: "Nothing: somebody else has answered this call.",
    errors.HookRefused: "Read the reason that the hook gives. [Hooks](../how-to/hooks.md) stand in "
    "`servers.toml` or in the program.",
    errors.ToolInactive: "Do what the message says: set the key, install the program or the extra, or mend "
    "the sandbox. "
    "`mcpbridge doctor` looks at all tools.",
    errors.UpstreamResting: "Wait for the seconds that the message names. The server failed many calls in a row: "
    "`mcpbridge status` and `mcpbridge logs` say why. Settings: `breaker`.",
    errors.UpstreamHttpError: "401: set `headers.Authorization`, or sign in. 403: the credentials lack this "
    "right. 429: call less often. "
    "500 and above: the fault is at the server; try again later.",
    errors.SessionExpired: "Nothing: the bridge begins a new session, and the call may be repeated.",
    errors.SignInNeeded: "Run `mcpbridge login SERVER`, with the `--scope` that the message names: "
    "[sign in to a server](../how-to/sign-in-to-a-server.md).",
    errors.UpstreamAnswered: "Read the server's own error, which is passed on as it came.",
    errors.UrlRequired: "Open the page that the message names, then make the call again.",
    errors.CallFailed: "Look at `is_error` and the text of the result before you use its value.",
    errors.FormatError: "Use one of the formats that the message names, and pass the model's message as its "
    "API returned it.",
    errors.BridgeClosed: "Use the bridge inside its `async with` block, and from the event loop that opened it.",
    errors.NotConnected: "Do what the message says: look at the URL, the token, and whether the bridge runs.",
    errors.ContextRefused: "Keep only what the type of the context allows; the message names the place.",
    errors.StoreFailed: "Free space on the disk, or look at the rights of the file that the message names; "
    "`[store]` sets where it is.",
    errors.ValueTooLarge: "Keep less, or raise `results.max_bytes`.",
    errors.ConfigError: "Mend the key that the message names. `mcpbridge check` looks at the whole file; "
    "[configuration](configuration.md) lists every key.",
    errors.CallRefused: "Read the message: it says what is refused, and why.",
    errors.UpstreamError: "`mcpbridge status` shows the state of the server.",
    BridgeError: "Read the message. The class below it says more.",
}
"""What to do, for classes that have no fixed `advice`."""


def below(root: type[BridgeError]) -> Iterator[type[BridgeError]]:
    """The classes below one, in the order of the file, each before those below it."""
    for one in root.__subclasses__():
        if one.__module__ == errors.__name__:
            yield one
            yield from below(one)


def entry(one: type[BridgeError]) -> str:
    """The part of the page about one class."""
    happened = " ".join((inspect.getdoc(one) or "").split())
    base = one.__mro__[1]
    kind = f" A kind of [{base.__name__}](#{base.__name__.lower()})." if base not in SECTIONS else ""
    advice = ADVICE.get(one) or one.advice or ADVICE[next(up for up in one.__mro__ if up in ADVICE)]
    return f"### {one.__name__}\n\n{happened}{kind}\n\n**What to do:** {advice}\n"


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    shown = set[type[BridgeError]]()
    for root, (title, common) in SECTIONS.items():
        parts.append(f"## {title}\n\n{common}\n")
        for one in (root, *below(root)) if root is not BridgeError else below(root):
            if one not in shown:
                shown.add(one)
                parts.append(entry(one))
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
