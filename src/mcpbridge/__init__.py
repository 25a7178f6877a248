"""One MCP server in front of all of yours.

Names are loaded when they are used: `import mcpbridge` by itself costs nothing, and the shim that `mcpbridge serve` is,
which has no time to lose, begins with it.
"""

from mcpbridge.base.version import __version__

TYPE_CHECKING = False  # that of `typing`, without the import
if TYPE_CHECKING:
    from mcpbridge.app.admin.http_client import ApiClient, ApiProblem
    from mcpbridge.base.errors import (
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
    from mcpbridge.config.load import load
    from mcpbridge.config.schema import Settings
    from mcpbridge.core.context import CallContext
    from mcpbridge.core.events import Event
    from mcpbridge.core.tool_calls_and_results import CallResult, PausedCall, ToolCall, ToolResult
    from mcpbridge.downstream.elicitation.program import Answerer
    from mcpbridge.downstream.requests.session_tools import ResolverContext
    from mcpbridge.engine.cassettes.cassette import Cassette
    from mcpbridge.engine.requests import RequestFailed
    from mcpbridge.engine.session_tools import Resolver
    from mcpbridge.engine.wiring.tools import Given, ProgramTool
    from mcpbridge.library.agent.models.anthropic import AnthropicModel
    from mcpbridge.library.agent.models.model import Model, ModelRequest
    from mcpbridge.library.agent.models.openai import OpenAIModel, OpenAIResponsesModel
    from mcpbridge.library.agent.models.sampling import SamplingModel
    from mcpbridge.library.agent.options import Prepared
    from mcpbridge.library.agent.run import Run
    from mcpbridge.library.bridge import Bridge
    from mcpbridge.library.calls.call import CallbackFailed
    from mcpbridge.library.calls.run_events import (
        ApprovalPending,
        ArgumentsDelta,
        BusEvent,
        CallProgress,
        CallReturned,
        CallStarted,
        MessageWritten,
        RoundStarted,
        RunEvent,
        RunFailed,
        RunFinished,
        RunOutcome,
        RunPaused,
        TextDelta,
        Turn,
        Usage,
    )
    from mcpbridge.library.client.client import Client
    from mcpbridge.library.define_tools.adapt import adapt_function
    from mcpbridge.library.define_tools.builder import ToolBuilder
    from mcpbridge.library.define_tools.decorator import SignedTool, ToolFunction, tool
    from mcpbridge.library.define_tools.human import human_tool, manual_tool
    from mcpbridge.library.define_tools.info import ToolInfo
    from mcpbridge.library.define_tools.options import ToolOptions
    from mcpbridge.library.define_tools.tool import Tool
    from mcpbridge.library.llm_formats.tool_definitions import Offered
    from mcpbridge.library.sync_bridge import SyncBridge
    from mcpbridge.pipeline.approvals.request import ApprovalRequest
    from mcpbridge.pipeline.hooks.call import Answer, HookCall, after, before
    from mcpbridge.tools.backend import Backend
    from mcpbridge.tools.human_in_the_loop.functions import Pause
    from mcpbridge.tools.packs import Pack, PackTool
    from mcpbridge.tools.python.function import FunctionBackend
    from mcpbridge.tools.python.output import Result
    from mcpbridge.tools.python.run_context.context import Context, Shared
    from mcpbridge.tools.settings import BackendSettings

_HOMES = {
    "AlreadyResumed": "base.errors",
    "Answer": "pipeline.hooks.call",
    "Answerer": "downstream.elicitation.program",
    "AnthropicModel": "library.agent.models.anthropic",
    "ApiClient": "app.admin.http_client",
    "ApiProblem": "app.admin.http_client",
    "ApprovalPending": "library.calls.run_events",
    "ApprovalRefused": "base.errors",
    "ApprovalRequest": "pipeline.approvals.request",
    "ArgumentsDelta": "library.calls.run_events",
    "ArgumentsRefused": "base.errors",
    "Backend": "tools.backend",
    "BackendSettings": "tools.settings",
    "Bridge": "library.bridge",
    "BridgeClosed": "base.errors",
    "BridgeError": "base.errors",
    "BusEvent": "library.calls.run_events",
    "CallContext": "core.context",
    "CallFailed": "base.errors",
    "CallProgress": "library.calls.run_events",
    "CallRefused": "base.errors",
    "CallResult": "core.tool_calls_and_results",
    "CallReturned": "library.calls.run_events",
    "CallStarted": "library.calls.run_events",
    "CallbackFailed": "library.calls.call",
    "Cassette": "engine.cassettes.cassette",
    "Client": "library.client.client",
    "ConfigError": "base.errors",
    "Context": "tools.python.run_context.context",
    "ContextRefused": "base.errors",
    "Event": "core.events",
    "FormatError": "base.errors",
    "FunctionBackend": "tools.python.function",
    "Given": "engine.wiring.tools",
    "HookCall": "pipeline.hooks.call",
    "HookRefused": "base.errors",
    "MessageWritten": "library.calls.run_events",
    "Model": "library.agent.models.model",
    "ModelRequest": "library.agent.models.model",
    "NoBridge": "base.errors",
    "NotConnected": "base.errors",
    "Offered": "library.llm_formats.tool_definitions",
    "OpenAIModel": "library.agent.models.openai",
    "OpenAIResponsesModel": "library.agent.models.openai",
    "Pack": "tools.packs",
    "PackTool": "tools.packs",
    "Pause": "tools.human_in_the_loop.functions",
    "PausedCall": "core.tool_calls_and_results",
    "Prepared": "library.agent.options",
    "ProgramTool": "engine.wiring.tools",
    "RequestFailed": "engine.requests",
    "Resolver": "engine.session_tools",
    "ResolverContext": "downstream.requests.session_tools",
    "Result": "tools.python.output",
    "RoundStarted": "library.calls.run_events",
    "Run": "library.agent.run",
    "RunEvent": "library.calls.run_events",
    "RunFailed": "library.calls.run_events",
    "RunFinished": "library.calls.run_events",
    "RunOutcome": "library.calls.run_events",
    "RunPaused": "library.calls.run_events",
    "SamplingModel": "library.agent.models.sampling",
    "Settings": "config.schema",
    "Shared": "tools.python.run_context.context",
    "SignedTool": "library.define_tools.decorator",
    "SyncBridge": "library.sync_bridge",
    "TextDelta": "library.calls.run_events",
    "Tool": "library.define_tools.tool",
    "ToolBuilder": "library.define_tools.builder",
    "ToolCall": "core.tool_calls_and_results",
    "ToolFunction": "library.define_tools.decorator",
    "ToolInfo": "library.define_tools.info",
    "ToolOptions": "library.define_tools.options",
    "ToolResult": "core.tool_calls_and_results",
    "Turn": "library.calls.run_events",
    "UnknownName": "base.errors",
    "UpstreamError": "base.errors",
    "Usage": "library.calls.run_events",
    "adapt_function": "library.define_tools.adapt",
    "after": "pipeline.hooks.call",
    "before": "pipeline.hooks.call",
    "human_tool": "library.define_tools.human",
    "load": "config.load",
    "manual_tool": "library.define_tools.human",
    "tool": "library.define_tools.decorator",
}
"""The module of each public name, below this package."""

__all__ = [
    "AlreadyResumed",
    "Answer",
    "Answerer",
    "AnthropicModel",
    "ApiClient",
    "ApiProblem",
    "ApprovalPending",
    "ApprovalRefused",
    "ApprovalRequest",
    "ArgumentsDelta",
    "ArgumentsRefused",
    "Backend",
    "BackendSettings",
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
    "FunctionBackend",
    "Given",
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
    "Pack",
    "PackTool",
    "Pause",
    "PausedCall",
    "Prepared",
    "ProgramTool",
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
    "Settings",
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
    "load",
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
