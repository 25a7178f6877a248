"""A call as others make it: a command line, a program, an HTTP request. Pure.

Each is written so that it can be pasted as it is: quoted for a shell, and with characters that cannot be seen escaped.
The cassette is made by `engine/cassettes/one_call.py`.
"""

import json
import pprint
import shlex
from collections.abc import Mapping, Sequence

from msgspec import Struct

from mcpbridge.app.console.shown_text import escape_unseen
from mcpbridge.base.masking.mask import MASK
from mcpbridge.protocol.jsonrpc import one_line
from mcpbridge.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcpbridge.protocol.revisions import LATEST_MODERN
from mcpbridge.protocol.sdk import encode_header_value

_WIDE = 100
_CALL, _READ, _PROMPT = "tools/call", "resources/read", "prompts/get"


class Copy(Struct, frozen=True):
    """One way to make the call."""

    key: str
    """Its name within the page."""
    title: str
    text: str
    note: str = ""
    """What to know before it is used."""


class Target(Struct, frozen=True):
    """The call that is copied."""

    method: str
    name: str
    """The tool's id, the prompt's name, the resource's URI."""
    arguments: str
    """JSON: an object."""
    config: str
    """The file of the configuration; empty: there is none."""
    url: str
    """Where the bridge serves HTTP, or would."""
    is_served: bool
    """It does serve HTTP there."""
    headers: Mapping[str, str] = {}
    """Further headers that its tool wants (`Mcp-Param-*`)."""


def copies_of(target: Target) -> Sequence[Copy]:
    """All that the method of the call allows."""
    if target.method not in (_CALL, _READ, _PROMPT):
        return []
    note = f"The call log masks secrets: put them in place of {MASK}." if MASK in target.arguments else ""
    found = [Copy("cli", "CLI", _command(target), note)] if target.method != _PROMPT else []
    return [
        *found,
        Copy("python", "Python", _program(target), note),
        Copy("curl", "curl", _request(target), _of(target, note)),
    ]


def _command(target: Target) -> str:
    config = ["--config", target.config] if target.config else []
    if target.method == _READ:
        return shlex.join(["mcpbridge", "read", *_word(target.name), *config])
    words = ["mcpbridge", "call", *config, "--args", _json(target.arguments), *_word(target.name)]
    return shlex.join(words)


def _word(text: str) -> Sequence[str]:
    """An argument that is no option, however it begins."""
    return ["--", text] if text.startswith("-") else [text]


_PROGRAM = """\
import asyncio

from mcpbridge import Bridge


async def main() -> None:
    async with Bridge.open({config}) as bridge:
        result = await bridge.{call}
        print({shown})


asyncio.run(main())
"""


def _program(target: Target) -> str:
    config = ascii(target.config) if target.config else "{}"
    name = ascii(target.name)
    if target.method == _READ:
        return _PROGRAM.format(config=config, call=f"read_resource({name})", shown="result")
    arguments = pprint.pformat(json.loads(target.arguments), width=_WIDE, sort_dicts=False)
    indented = arguments.replace("\n", "\n            ")
    if target.method == _PROMPT:
        return _PROGRAM.format(config=config, call=f"get_prompt({name}, {indented})", shown="result")
    call = f"call_tool(\n            {name},\n            {indented},\n        )"
    return _PROGRAM.format(config=config, call=call, shown="result.text")


def _request(target: Target) -> str:
    key = "uri" if target.method == _READ else "name"
    meta = {PROTOCOL_VERSION: LATEST_MODERN, CLIENT_INFO: {"name": "curl", "version": "1"}, CLIENT_CAPABILITIES: {}}
    params = f'"{key}":{json.dumps(target.name)}'
    if target.method != _READ:
        params += f',"arguments":{_json(target.arguments)}'
    params += f',"_meta":{json.dumps(meta, separators=(",", ":"))}'
    body = f'{{"jsonrpc":"2.0","id":1,"method":"{target.method}","params":{{{params}}}}}'
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": LATEST_MODERN,
        "Mcp-Method": target.method,
        "Mcp-Name": encode_header_value(target.name),
        **target.headers,
    }
    lines = [f"curl {shlex.quote(target.url)}", '-H "Authorization: Bearer $TOKEN"']
    lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
    return " \\\n  ".join([*lines, f"--data-binary {shlex.quote(body)}"])


def _of(target: Target, note: str) -> str:
    notes = [note] if note else []
    notes += ["$TOKEN: a token of `http.tokens`, or the one in the file that `mcpbridge status` names."]
    if not target.is_served:
        notes.append("This bridge serves no HTTP now: `mcpbridge serve --http` does.")
    return " ".join(notes)


def _json(text: str) -> str:
    """The same JSON in one line, to be read by people."""
    return escape_unseen(one_line(text.encode("utf-8", "replace")).decode())
