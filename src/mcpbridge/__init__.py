"""One MCP server in front of all of yours.

Names are loaded when they are used: `import mcpbridge` by itself costs nothing, and the shim of `mcpbridge serve`,
which has no time to lose, begins with it.
"""

from mcpbridge._version import __version__

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from mcpbridge.approvals.request import ApprovalRequest
    from mcpbridge.backends.answering import Pause
    from mcpbridge.backends.contexts import Context, Shared
    from mcpbridge.backends.events import Result
    from mcpbridge.bridge import Bridge, RequestFailed
    from mcpbridge.cassettes.cassette import Cassette
    from mcpbridge.context import CallContext
    from mcpbridge.downstream.extra_tools import ResolverContext
    from mcpbridge.downstream.program import Answerer
    from mcpbridge.errors import (
        AlreadyResumed,
        ApprovalRefused,
        ArgumentsRefused,
        BridgeClosed,
        BridgeError,
        CallFailed,
        CallRefused,
        ConfigError,
        ContextRefused,
        FormatError,
        HookRefused,
        NoBridge,
        NotConnected,
        UnknownName,
        UpstreamError,
    )
    from mcpbridge.events import Event
    from mcpbridge.hooks.calls import Answer, HookCall, after, before
    from mcpbridge.library.call_hearing import CallbackFailed
    from mcpbridge.library.client import Client
    from mcpbridge.library.defining import Tool, ToolBuilder, adapt_function, tool
    from mcpbridge.library.formats.front import Offered
    from mcpbridge.library.models.anthropic import AnthropicModel
    from mcpbridge.library.models.model import Model, ModelRequest
    from mcpbridge.library.models.openai_chat import OpenAIModel
    from mcpbridge.library.models.openai_responses import OpenAIResponsesModel
    from mcpbridge.library.models.sampling import SamplingModel
    from mcpbridge.library.resolving import Resolver
    from mcpbridge.library.run_events import (
        ApprovalPending,
        ArgumentsDelta,
        BusEvent,
        CallProgress,
        CallReturned,
        CallStarted,
        MessageWritten,
        RoundStarted,
        RunEvent,
        RunFinished,
        RunPaused,
        TextDelta,
    )
    from mcpbridge.library.run_outcome import RunFailed, RunOutcome, Turn
    from mcpbridge.library.running import Run
    from mcpbridge.library.running_options import Prepared
    from mcpbridge.library.tool_function import SignedTool, ToolFunction
    from mcpbridge.library.tool_info import ToolInfo
    from mcpbridge.library.tool_options import ToolOptions
    from mcpbridge.library.tool_people import human_tool, manual_tool
    from mcpbridge.library.usage import Usage
    from mcpbridge.sync_bridge import SyncBridge
    from mcpbridge.toolcalls import CallResult, PausedCall, ToolCall, ToolResult

_HOMES = {
    "AlreadyResumed": "errors",
    "Answer": "hooks.calls",
    "Answerer": "downstream.program",
    "AnthropicModel": "library.models.anthropic",
    "ApprovalPending": "library.run_events",
    "ApprovalRefused": "errors",
    "ApprovalRequest": "approvals.request",
    "ArgumentsDelta": "library.run_events",
    "ArgumentsRefused": "errors",
    "Bridge": "bridge",
    "BridgeClosed": "errors",
    "BridgeError": "errors",
    "BusEvent": "library.run_events",
    "CallContext": "context",
    "CallFailed": "errors",
    "CallProgress": "library.run_events",
    "CallRefused": "errors",
    "CallResult": "toolcalls",
    "CallReturned": "library.run_events",
    "CallStarted": "library.run_events",
    "CallbackFailed": "library.call_hearing",
    "Cassette": "cassettes.cassette",
    "Client": "library.client",
    "ConfigError": "errors",
    "Context": "backends.contexts",
    "ContextRefused": "errors",
    "Event": "events",
    "FormatError": "errors",
    "HookCall": "hooks.calls",
    "HookRefused": "errors",
    "MessageWritten": "library.run_events",
    "Model": "library.models.model",
    "ModelRequest": "library.models.model",
    "NoBridge": "errors",
    "NotConnected": "errors",
    "Offered": "library.formats.front",
    "OpenAIModel": "library.models.openai_chat",
    "OpenAIResponsesModel": "library.models.openai_responses",
    "Pause": "backends.answering",
    "PausedCall": "toolcalls",
    "Prepared": "library.running_options",
    "RequestFailed": "bridge",
    "Resolver": "library.resolving",
    "ResolverContext": "downstream.extra_tools",
    "Result": "backends.events",
    "RoundStarted": "library.run_events",
    "Run": "library.running",
    "RunEvent": "library.run_events",
    "RunFailed": "library.run_outcome",
    "RunFinished": "library.run_events",
    "RunOutcome": "library.run_outcome",
    "RunPaused": "library.run_events",
    "SamplingModel": "library.models.sampling",
    "Shared": "backends.contexts",
    "SignedTool": "library.tool_function",
    "SyncBridge": "sync_bridge",
    "TextDelta": "library.run_events",
    "Tool": "library.defining",
    "ToolBuilder": "library.defining",
    "ToolCall": "toolcalls",
    "ToolFunction": "library.tool_function",
    "ToolInfo": "library.tool_info",
    "ToolOptions": "library.tool_options",
    "ToolResult": "toolcalls",
    "Turn": "library.run_outcome",
    "UnknownName": "errors",
    "UpstreamError": "errors",
    "Usage": "library.usage",
    "adapt_function": "library.defining",
    "after": "hooks.calls",
    "before": "hooks.calls",
    "human_tool": "library.tool_people",
    "manual_tool": "library.tool_people",
    "tool": "library.defining",
}
"""The module of each public name, below this package."""

__all__ = [
    "AlreadyResumed",
    "Answer",
    "Answerer",
    "AnthropicModel",
    "ApprovalPending",
    "ApprovalRefused",
    "ApprovalRequest",
    "ArgumentsDelta",
    "ArgumentsRefused",
    "Bridge",
    "BridgeClosed",
    "BridgeError",
    "BusEvent",
    "CallContext",
    "CallFailed",
    "CallProgress",
    "CallRefused",
    "CallResult",
    "CallReturned",
    "CallStarted",
    "CallbackFailed",
    "Cassette",
    "Client",
    "ConfigError",
    "Context",
    "ContextRefused",
    "Event",
    "FormatError",
    "HookCall",
    "HookRefused",
    "MessageWritten",
    "Model",
    "ModelRequest",
    "NoBridge",
    "NotConnected",
    "Offered",
    "OpenAIModel",
    "OpenAIResponsesModel",
    "Pause",
    "PausedCall",
    "Prepared",
    "RequestFailed",
    "Resolver",
    "ResolverContext",
    "Result",
    "RoundStarted",
    "Run",
    "RunEvent",
    "RunFailed",
    "RunFinished",
    "RunOutcome",
    "RunPaused",
    "SamplingModel",
    "Shared",
    "SignedTool",
    "SyncBridge",
    "TextDelta",
    "Tool",
    "ToolBuilder",
    "ToolCall",
    "ToolFunction",
    "ToolInfo",
    "ToolOptions",
    "ToolResult",
    "Turn",
    "UnknownName",
    "UpstreamError",
    "Usage",
    "__version__",
    "adapt_function",
    "after",
    "before",
    "human_tool",
    "manual_tool",
    "tool",
]


def __getattr__(name: str) -> object:
    """Load a public name (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'mcpbridge' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"mcpbridge.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
