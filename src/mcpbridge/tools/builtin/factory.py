"""The tools that `[builtin] enable` can switch on, by name. What is not switched on is not imported."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from mcpbridge.core.model import Call
from mcpbridge.sandbox.job import Runner
from mcpbridge.tools.builtin.builtin import Builtin

META = frozenset({"brief", "pulse", "context-status", "task-complete", "final-answer"})
"""Those that report on the bridge, or report to it, and do no work themselves."""


class BuiltinContext(Struct, frozen=True):
    """What tools are made with besides their settings."""

    runner: Callable[[], Runner]
    """The sandbox."""
    read_status: Callable[[Call, str], Awaitable[Mapping[str, Any]]]
    """What `brief` and `pulse` show a caller, by the name of the tool."""
    directory: Path = Path()
    """Where the configuration is."""
    own_files: tuple[str, ...] = ()
    """Files of the bridge that no tool may touch: its configuration, its store."""
    own_code: Callable[[Sequence[str]], bool] = lambda path: False
    """Whether a file, given by the names from the root of the file system down, is one that tools are made of, which no
    tool may write."""


def make(name: str, section: Any, context: BuiltinContext) -> Builtin:
    """The tool of this name, which runs nothing yet. `section`: its settings, None where it has none."""
    if name in ("brief", "pulse", "context-status"):
        from mcpbridge.tools.builtin.meta.session_status import StatusTool

        return StatusTool(name, context.read_status)
    if name in META:
        from mcpbridge.tools.builtin.meta.session_status import Deliverable

        return Deliverable(name)
    if name.startswith("file-"):
        return _file_tool(name, section, context)
    if name.endswith("-cli"):
        return _cli_tool(name, section, context)
    if name == "code-execute":
        from mcpbridge.tools.builtin.code.code_execute import CodeExecute

        return CodeExecute(section, context.runner())
    return _web_tool(name, section)


def _web_tool(name: str, section: Any) -> Builtin:
    if name == "web-search":
        from mcpbridge.tools.builtin.web.web_search import WebSearch as Tool
    elif name == "http-get":
        from mcpbridge.tools.builtin.web.http_get import HttpGet as Tool
    else:
        from mcpbridge.tools.builtin.web.crypto_price import CryptoPrice as Tool
    return Tool(section)


def _file_tool(name: str, section: Any, context: BuiltinContext) -> Builtin:
    from mcpbridge.tools.builtin.files.access import Files

    if name == "file-read":
        from mcpbridge.tools.builtin.files.file_read import FileRead as Tool
    elif name == "file-write":
        from mcpbridge.tools.builtin.files.file_write import FileWrite as Tool
    elif name == "file-list":
        from mcpbridge.tools.builtin.files.file_list import FileList as Tool
    else:
        from mcpbridge.tools.builtin.files.file_search import FileSearch as Tool
    return Tool(Files(section, sealed=context.own_files, code=context.own_code))


def _cli_tool(name: str, section: Any, context: BuiltinContext) -> Builtin:
    if name == "git-cli":
        from mcpbridge.tools.builtin.programs.git.git import GitCli as Tool
    elif name == "gh-cli":
        from mcpbridge.tools.builtin.programs.gh import GhCli as Tool
    else:
        from mcpbridge.tools.builtin.programs.gws import GwsCli as Tool
    return Tool(section, context.runner)
