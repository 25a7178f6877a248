"""Servers that could be reached in a better way than they are: fronts for URLs, packages that nobody keeps. Pure."""

import re
from collections.abc import Iterator, Mapping

from mcpbridge.doctor.finding import Finding
from mcpbridge.doctor.launchers import launcher_of, package_of
from mcpbridge.doctor.source import Source
from mcpbridge.upstream.settings import ServerSettings

__all__ = ["about_way"]

_FRONTS = {"mcp-remote", "mcp-proxy", "supergateway", "@pyroprompts/mcp-stdio-to-streamable-http-adapter"}
"""Programs that speak stdio on this side and HTTP on the other."""
_URL = re.compile(r"https?://[^\s\"']+")
_ARCHIVED: Mapping[str, str] = {
    "@modelcontextprotocol/server-github": "GitHub's own: github/github-mcp-server (a container image)",
    "@modelcontextprotocol/server-brave-search": "Brave's own: @brave/brave-search-mcp-server",
    "@modelcontextprotocol/server-puppeteer": "@playwright/mcp",
    "@modelcontextprotocol/server-sentry": "Sentry's own: @sentry/mcp-server",
    **dict.fromkeys(
        (f"@modelcontextprotocol/server-{name}"
         for name in ("aws-kb-retrieval", "everart", "gdrive", "gitlab", "google-maps", "postgres", "redis", "slack")),
        "",
    ),
    "mcp-server-sqlite": "",
    "mcp-server-sentry": "Sentry's own: @sentry/mcp-server",
}  # fmt: skip
"""Reference servers that were archived in May 2025, and who went on."""


def about_way(name: str, settings: ServerSettings, source: Source) -> Iterator[Finding]:
    """What there is to say of how a server is reached."""
    where, package = source.where("servers", name), package_of(settings)
    if package in _FRONTS or (launcher_of(settings) == "other" and settings.command in _FRONTS):
        url = next((found[0] for word in settings.args if (found := _URL.match(word))), "")
        if url:
            shown = url.partition("?")[0]  # what follows may hold a secret
            what = f"{package or settings.command} stands between the bridge and {shown}"
            fix = f'Write url = "{shown}" instead of command and args; if it wants a sign-in: `mcpbridge login {name}`.'
            why = "The bridge speaks to URLs itself: one process less, and nothing is lost on the way."
            yield Finding("front-not-needed", "note", what, name, where, why, fix)
    if package in _ARCHIVED:
        successor = _ARCHIVED[package]
        fix = f"Use {successor}." if successor else "Look for one that is maintained."
        why = "It was archived in May 2025, and gets no security updates."
        yield Finding("archived", "note", f"{package} is not maintained any more", name, where, why, fix)
