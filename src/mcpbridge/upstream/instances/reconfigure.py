"""What becomes of a running server when its settings change. Pure; `pool` does it.

A server keeps its process and its session if nothing that it was started, reached or guarded with has changed. Every
setting is in one of the two lists here (a test sees to that), so that whoever adds one decides.
"""

from collections.abc import Mapping

from msgspec import Struct

from mcpbridge.upstream.settings import ServerSettings

KEEPS = frozenset(
    {
        # What is offered of it: the catalog and the policy are made anew with the settings.
        *("tools", "resources", "prompts", "tool", "title", "tags", "trusted", "text_trust", "accept_findings"),
        # What of it is held: looked at again with the settings.
        *("pin", "pin_ignore", "written"),
        # How its calls are treated before they come to it (`ToolOptions`, the stages of the way).
        *("permission", "risk", "read_only", "destructive", "idempotent", "arguments", "inject_defaults", "late"),
        *("retry", "cache", "cache_scope", "side_effects", "log_content", "results", "rate_limit", "redact", "labels"),
        *("redact_arguments", "secrets_to"),
        # Asked anew each time that another instance is opened, or has nothing to do.
        *("max_instances", "instance_idle"),
        # What the traffic of a running server adopts.
        *("call_timeout", "max_call_timeout", "question_rate"),
    }
)
"""Settings that neither the connection nor its traffic depends on, or that it takes over at once (`configure`)."""

REPLACES = frozenset(
    {
        # What it is started with, or reached by.
        *(
            "command",
            "image",
            "container",
            "args",
            "env",
            "inherit_env",
            "cwd",
            "project_texts",
            "memory_limit",
            "sandbox",
        ),
        *("url", "headers", "auth", "tls", "proxy", "transport"),
        # What is agreed with it, and who may share it.
        *("era", "questions", "may_ask", "roots", "share", "unavailable"),
        # What the traffic and the care for its connection are set up with.
        *("init_timeout", "ping_interval", "max_concurrent", "max_queued"),
        *("queue_timeout", "breaker", "start", "idle_stop"),
        # One that is disabled is not there: it counts as removed.
        "disabled",
    }
)
"""Settings with which it is another server, or its connection another one."""


class Changed(Struct, frozen=True):
    """What became of the servers, each by name, in order."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    """They are started anew; what they offered before is valid until they have listed."""
    untouched: tuple[str, ...] = ()
    """Untouched, whether or not something else was configured about them."""


def changes(before: Mapping[str, ServerSettings], after: Mapping[str, ServerSettings]) -> Changed:
    """What leads from one set of servers to another; those that are disabled are in neither."""
    both = sorted(before.keys() & after.keys())
    replaced = tuple(name for name in both if _is_another(before[name], after[name]))
    return Changed(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        replaced=replaced,
        untouched=tuple(name for name in both if name not in replaced),
    )


def _is_another(before: ServerSettings, after: ServerSettings) -> bool:
    return before != after and any(getattr(before, name) != getattr(after, name) for name in REPLACES)
