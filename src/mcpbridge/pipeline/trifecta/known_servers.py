"""Which labels the tools of well-known servers have, so that nobody has to write them down. Pure.

A server is known by the package that its command runs, by its image, or by the host of its URL. What a table of ours
says is a default: `labels` of a server or tool go before it.
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from msgspec import Struct

from mcpbridge.core.call_settings import Labels
from mcpbridge.upstream.isolation.packages import package_of

NONE: Labels = frozenset()
_PRIVATE: Labels = frozenset({"private"})
_UNTRUSTED: Labels = frozenset({"untrusted"})
_SENDS: Labels = frozenset({"sends"})
_BOTH = _PRIVATE | _UNTRUSTED
_WEB = _UNTRUSTED | _SENDS
_ALL = _BOTH | _SENDS


class KnownServer(Struct, frozen=True):
    """One server of the table."""

    names: tuple[str, ...]
    """Packages, images and hosts, in small letters; `*` stands for anything."""
    reads: Labels
    """Of its tools that only read."""
    writes: Labels
    """Of all others."""


KNOWN = (
    KnownServer(("@modelcontextprotocol/server-filesystem", "mcp/filesystem"), _PRIVATE, NONE),
    KnownServer(("mcp-server-git", "mcp/git"), _PRIVATE, NONE),
    KnownServer(("mcp-server-fetch", "mcp/fetch"), _WEB, _WEB),
    KnownServer(("@modelcontextprotocol/server-memory", "mcp/memory"), _PRIVATE, NONE),
    KnownServer(
        (
            *("mcp-server-time", "mcp/time", "@modelcontextprotocol/server-everything", "mcp/everything"),
            *("@modelcontextprotocol/server-sequential-thinking", "mcp/sequentialthinking"),
        ),
        NONE,
        NONE,
    ),
    KnownServer(
        (
            *("mcp-server-sqlite", "mcp/sqlite", "@modelcontextprotocol/server-postgres", "mcp/postgres"),
            *("postgres-mcp", "mongodb-mcp-server", "@modelcontextprotocol/server-redis", "mcp-server-kubernetes"),
            *("mcp-obsidian", "@bytebase/dbhub"),
        ),
        _PRIVATE,
        NONE,
    ),
    # Anybody can write an issue, a message or a page there, and others read what is written.
    KnownServer(
        (
            *("@modelcontextprotocol/server-github", "ghcr.io/github/github-mcp-server", "github-mcp-server"),
            *("api.githubcopilot.com", "@modelcontextprotocol/server-gitlab", "mcp/gitlab", "mcp/github"),
            *("@modelcontextprotocol/server-slack", "slack-mcp-server", "mcp/slack", "mcp.slack.com"),
            *("@notionhq/notion-mcp-server", "mcp.notion.com", "mcp.linear.app", "mcp.atlassian.com", "mcp-atlassian"),
            *("mcp.asana.com", "mcp.sentry.dev", "@sentry/mcp-server", "mcp.intercom.com", "mcp.hubspot.com"),
            *("@gongrzhe/server-gmail-autoauth-mcp", "workspace-mcp", "mcp.zapier.com", "mcp.box.com", "mcp-discord"),
        ),
        _BOTH,
        _SENDS,
    ),
    KnownServer(("@modelcontextprotocol/server-gdrive", "mcp/gdrive"), _BOTH, _SENDS),
    KnownServer(("mcp.stripe.com", "@stripe/mcp", "mcp.paypal.com", "mcp.squareup.com"), _PRIVATE, _SENDS),
    # A search sends its words to somebody, and what it finds is anybody's.
    KnownServer(
        (
            *("@modelcontextprotocol/server-brave-search", "@brave/brave-search-mcp-server", "mcp/brave-search"),
            *("tavily-mcp", "mcp.tavily.com", "exa-mcp-server", "mcp.exa.ai", "firecrawl-mcp", "mcp.firecrawl.dev"),
            *("duckduckgo-mcp-server", "@perplexity-ai/mcp-server", "@upstash/context7-mcp", "mcp.context7.com"),
            *("mcp.deepwiki.com", "@modelcontextprotocol/server-puppeteer", "mcp/puppeteer", "@playwright/mcp"),
            *("mcp/playwright", "mcr.microsoft.com/playwright/mcp"),
        ),
        _WEB,
        _WEB,
    ),
    KnownServer(("chrome-devtools-mcp", "@wonderwhy-er/desktop-commander"), _ALL, _ALL),
)

OWN_TOOLS: dict[str, Labels] = {
    **dict.fromkeys(("web-search", "http-get", "crypto-price"), _WEB),
    **dict.fromkeys(("file-read", "file-list", "file-search"), _PRIVATE),
    "git-cli": _PRIVATE | _SENDS,
    **dict.fromkeys(("gh-cli", "gws-cli"), _ALL),
}
"""The tools of `[builtin]`; those that are missing have none."""


def known_server(command: str | None, args: Sequence[str], image: str | None, url: str | None) -> KnownServer | None:
    """The row of the table that a server is of; None: it is not known."""
    names = list(_names(command, args, image, url))
    for row in KNOWN:
        if any(fnmatchcase(name, pattern) for name in names for pattern in row.names):
            return row
    return None


_IMAGE_END = re.compile(r"(?:@sha256:[0-9a-f]+|:[\w.-]+)$")
_ENGINES = frozenset({"docker", "podman"})


def _names(command: str | None, args: Sequence[str], image: str | None, url: str | None) -> Iterator[str]:
    if url:
        yield _host(url)
    if image:
        yield _image(image)
    if not command:
        return
    package = package_of(command, args)
    yield package.name.lower()
    for word in package.arguments:
        if word.startswith(("https://", "http://")):  # of a program that connects to it, such as mcp-remote
            yield _host(word)
        elif package.name in _ENGINES and not word.startswith("-"):
            yield _image(word)


def _host(url: str) -> str:
    return (urlsplit(url).hostname or "").lower()


def _image(name: str) -> str:
    return _IMAGE_END.sub("", name.lower()).removeprefix("docker.io/")
