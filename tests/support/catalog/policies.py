"""Tools, rules and calls for tests of the policy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcpbridge.core.call_options import NO_HINTS, Hints
from mcpbridge.core.call_settings import CallDefaults
from mcpbridge.engine.wiring.pipeline import ToolOptions
from mcpbridge.pipeline.permissions.policy import Decision, Policy
from mcpbridge.pipeline.permissions.settings import PermissionRule
from mcpbridge.protocol.jsonrpc import Fields, decode_fields, encode
from mcpbridge.upstream.settings import ServerSettings


@dataclass(frozen=True)
class AnyTool:
    """A tool, as far as rules look at one."""

    server: str
    name: str
    hints: Hints = NO_HINTS
    shown: str = ""
    """What the configuration calls it, if not the same."""
    headers: Mapping[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])
    definition: bytes = b"{}"

    @property
    def id(self) -> str:
        return f"{self.server}/{self.shown or self.name}"

    @property
    def wire(self) -> str:
        return self.id.replace("/", "__")


@dataclass(frozen=True)
class Asking:
    """One call, as conditions see it."""

    client: Mapping[str, object]
    arguments: Fields
    context: Mapping[str, object] = field(default_factory=dict[str, object])


def policy_of(
    *rules: Mapping[str, Any],
    servers: Mapping[str, Mapping[str, Any]] | None = None,
    calls: Mapping[str, Any] | None = None,
) -> Policy:
    """The policy of these sections of a configuration."""
    settings = {
        name: ServerSettings.model_validate({"command": "x", **server}) for name, server in (servers or {}).items()
    }
    defaults = CallDefaults.model_validate(calls or {})
    options_of: Callable[..., Any] = ToolOptions(settings, defaults).of
    return Policy([PermissionRule.model_validate(rule) for rule in rules], settings, defaults, options_of)


def decide(
    policy: Policy,
    tool: AnyTool,
    arguments: Mapping[str, Any] | None = None,
    *,
    client: str = "",
    principal: str = "",
    **context: Any,
) -> Decision:
    """What becomes of a call, whichever stage decides it."""
    asking = Asking({"name": client, "principal": principal}, decode_fields(encode(dict(arguments or {}))), context)
    return policy.of(tool).decide(policy.audience(client, principal), asking)


def permission(policy: Policy, tool: AnyTool, arguments: Mapping[str, Any] | None = None, **who: Any) -> str:
    """The same, of which only the permission."""
    return decide(policy, tool, arguments, **who).permission


def hides(policy: Policy, tool: AnyTool, *, client: str = "", principal: str = "") -> bool:
    """Whether this client does not see the tool."""
    return policy.of(tool).hides(policy.audience(client, principal))
