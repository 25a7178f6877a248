"""What to do about a call that went wrong: a table for whoever runs the bridge. Pure.

The error's own `advice` is for the model that called. What each class means is in docs/reference/errors.md.
"""

from collections.abc import Mapping
from urllib.parse import quote

from msgspec import Struct

from mcpbridge.base.errors import BridgeError
from mcpbridge.pipeline.observability.metrics import TOOL_ERROR
from mcpbridge.storage.call_log.reader import Row


class Help(Struct, frozen=True):
    """Why a call went wrong, and what to do."""

    what: str
    """What happened, a sentence."""
    fix: str
    """What to do, a sentence or two."""
    link: str = ""
    """Where that is done: a path below `/console`, or a place on the call's page."""
    link_text: str = ""
    page: str = ""
    """Where the docs explain the error."""


_HERE = "#again"
_SERVER = "servers/{server}"

_BY_ERROR: Mapping[str, tuple[str, str, str, str]] = {
    "ArgumentsRefused": (
        "The arguments do not fit the tool's schema; nothing was sent.",
        "Mend the arguments and call again. If clients send the same mistake again and again, an alias helps them.",
        _HERE,
        "Edit and call",
    ),
    "NotPermitted": (
        "A rule denies this call; nothing was sent.",
        "If it should be allowed, change the rule in [[permissions]] or the server's settings.",
        "settings",
        "Settings",
    ),
    "InsufficientScope": (
        "The person's token lacks a scope that this tool needs; nothing was sent.",
        "The client can ask the person for it. Which tools need which scopes: [auth] tool_scopes.",
        "settings",
        "Settings",
    ),
    "ApprovalRefused": (
        "A person refused the call, or did not answer in time; nothing was sent.",
        "Call again and answer it, or allow the tool in [[permissions]].",
        "approvals",
        "Approvals",
    ),
    "ApprovalUnavailable": (
        "The call needs a person's approval, and nobody could be asked; nothing was sent.",
        "Set in approval.ask who is asked, for example the console, or allow the tool in [[permissions]].",
        "approvals",
        "Approvals",
    ),
    "HookRefused": (
        "A hook refused the call; nothing was sent.",
        "Which one is in [[hooks]].",
        "settings",
        "Settings",
    ),
    "ToolInactive": (
        "This tool of the bridge lacks a key, a program or a sandbox.",
        "The doctor says what it lacks.",
        "#doctor",
        "Doctor",
    ),
    "AddressRefused": (
        "The address may not be fetched for a model; nothing was sent.",
        "If it should be reachable, add it to builtin.http_get.allow.",
        "settings",
        "Settings",
    ),
    "PathRefused": (
        "The file is outside of what tools may use.",
        "If it should be used, add its directory to builtin.files.roots.",
        "settings",
        "Settings",
    ),
    "AlreadyResumed": ("The paused call was answered before.", "Nothing needs to be done.", "", ""),
    "BadRequest": (
        "The client's message breaks the protocol.",
        "Report it to the authors of the client.",
        "",
        "",
    ),
    "UnknownName": (
        "There is no tool of this name for this client.",
        "Look in the catalog whether it is hidden or its server is not ready.",
        "catalog",
        "Catalog",
    ),
    "Overloaded": (
        "A queue or limit was full; nothing was sent.",
        "Raise max_concurrent or max_queued of the server, if it can bear more.",
        _SERVER,
        "Server",
    ),
    "RateLimited": (
        "Too many calls came in too short a time; nothing was sent.",
        "Raise rate_limit of [calls], of the server or of the tool, if it can bear more.",
        "settings",
        "Settings",
    ),
    "BudgetSpent": (
        "This conversation has made as many calls as it may; nothing was sent.",
        "Raise calls.max_calls or calls.max_chain, if the conversation needs more.",
        "settings",
        "Settings",
    ),
    "LimitUnavailable": (
        "A budget, run or quota that several bridges count together could not be counted; nothing was sent.",
        "Look at the server of the store (store.url): mcpbridge status says whether it can be used.",
        "settings",
        "Settings",
    ),
    "QuotaSpent": (
        "The quota of the user or of the team is used up; nothing was sent.",
        "Raise quota in [[roles]], if they need more; the error says when there is room again.",
        "usage",
        "Usage",
    ),
    "UpstreamUnavailable": (
        "The server is not connected; nothing was sent.",
        "Its page says why it does not start.",
        _SERVER,
        "Server",
    ),
    "UpstreamResting": (
        "The server failed many calls in a row and gets none for a while; nothing was sent.",
        "Its page says what went wrong. Calls pass again by themselves.",
        _SERVER,
        "Server",
    ),
    "UpstreamGone": (
        "The connection ended during the call: the server may have done it.",
        "See what the server wrote at that time, below. Check whether the action took effect before you repeat it.",
        "#log",
        "Log of that time",
    ),
    "UpstreamTimeout": (
        "No answer came in time: the server may have done it.",
        "Check whether the action took effect. If the tool needs longer, raise the server's call_timeout.",
        _SERVER,
        "Server",
    ),
    "CallCancelled": (
        "A person cancelled the call while it ran: the server may have done it.",
        "Check whether the action took effect before you repeat it.",
        _HERE,
        "Call again",
    ),
    "UpstreamGarbled": (
        "An answer came that cannot be read; the call probably ran.",
        "This is a fault of the server: report it to its authors.",
        "#log",
        "Log of that time",
    ),
    "UpstreamHttpError": (
        "The server answered with an HTTP error.",
        "See its page and the log of that time.",
        _SERVER,
        "Server",
    ),
    "SessionExpired": ("The server forgot the session; nothing was executed.", "Call again.", _HERE, "Call again"),
    "SignInNeeded": ("A person has to sign in to the server first.", "Sign in on its page.", _SERVER, "Server"),
    "TaskLost": (
        "The server ran the call as a task, which ended without a result.",
        "Check whether the action took effect before you repeat it.",
        _SERVER,
        "Server",
    ),
    "UrlRequired": (
        "The server wants a page visited first, and the client opens none.",
        "Open the page that the error names, then call again.",
        _HERE,
        "Call again",
    ),
    "UpstreamAnswered": ("The server refused the request with an error of its own.", "Mend the call.", _HERE, "Edit"),
    "AnswerTooLarge": (
        "The call ran, but its answer is larger than an event that the client takes.",
        "Ask for less, or raise http.max_event.",
        _HERE,
        "Edit and call",
    ),
    "StoreFailed": ("A value could not be kept or read.", "The doctor says what is wrong.", "#doctor", "Doctor"),
}
"""By class: what happened, what to do, where, and what the link says."""

_BY_OUTCOME: Mapping[str, tuple[str, str, str, str]] = {
    "tool_error": (
        "The tool itself says that it failed.",
        "Its result, below, says why. Mend the arguments and call again.",
        _HERE,
        "Edit and call",
    ),
    "cancelled": (
        "The client, or a person, cancelled the call. The server was asked to stop; it may have done the work.",
        "Check whether the action took effect before you repeat it.",
        _HERE,
        "Call again",
    ),
    "interrupted": (
        "The bridge ended while the call ran, after it was sent: it may have taken effect.",
        "Check whether the action took effect before you repeat it.",
        _HERE,
        "Call again",
    ),
    "refused": ("The bridge refused the call; nothing was sent.", "See the log of that time.", "#log", "Log"),
    "failed": (
        "The call failed at the server, or on the way to it.",
        "See the log of that time, and the server's page.",
        _SERVER,
        "Server",
    ),
}
_RPC_CODES: Mapping[str, str] = {
    "-32601": "The server does not know this method or tool.",
    "-32602": "The server found the parameters wrong.",
    "-32603": "The server had an error inside.",
    "-32700": "The server could not read the request.",
}


def help_for(row: Row) -> Help | None:
    """What to do about this call; None: nothing is wrong with it."""
    outcome, error = str(row.get("outcome", "")), str(row.get("error", ""))
    known = _BY_ERROR.get(error)
    if known is None and outcome in _BY_OUTCOME:
        known = _BY_OUTCOME[outcome]
        if error in _RPC_CODES:
            known = (_RPC_CODES[error], *_BY_ERROR["UpstreamAnswered"][1:])
    if known is None or outcome in ("ok", "asked", "running"):
        return None
    what, fix, link, link_text = known
    server = str(row.get("server", ""))
    if link == _SERVER:
        link = _SERVER.format(server=quote(server, safe="")) if server else "servers"
    is_class = error in _BY_ERROR and error != TOOL_ERROR
    return Help(what, fix, link, link_text, f"{BridgeError.docs_page}#{error.lower()}" if is_class else "")
