"""`code-execute`: runs a program that the model wrote, in the sandbox.

The program has an empty folder to work in, no network and no files but those of the system, unless the configuration
gives it more. How it ended, what it wrote and which files it left are in the result, as text and as values.

Where no sandbox keeps every promise the tool is not listed, and refuses. That is found out while it is `running`; until
then it is not listed either.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from mcpbridge.base.errors import ArgumentsRefused, ToolInactive
from mcpbridge.base.log import get_logger
from mcpbridge.base.units import show_bytes, show_seconds
from mcpbridge.core.call_settings import CallSettings
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.sandbox.job import SANDBOX, Job, JobResult, Limits, Runner, decoded, describe_cut, describe_end
from mcpbridge.sandbox.runner import outside, rights_of, why_none
from mcpbridge.tools.builtin.code.languages import Interpreter, Language, find_interpreters
from mcpbridge.tools.builtin.code.settings import CodeExecuteSettings

_LONGEST_NAME = 255
"""Bytes of a file name."""


class CodeArguments(Struct, frozen=True):
    """The arguments."""

    language: Language
    code: str
    stdin: str = ""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """Texts by name."""
    timeout: float | None = None
    """Seconds."""


def checked(given: CodeArguments, main: str, most: int) -> dict[str, bytes]:
    """The files of a program: its own, called `main`, and those that it was given.

    Raises:
        ArgumentsRefused: a name is none, or all together have more than `most` bytes.
    """
    for name in given.files:
        if not name.strip(". ") or any(mark in name for mark in "/\\\0") or len(name.encode()) > _LONGEST_NAME:
            raise ArgumentsRefused(f"`files`: {name[:80]!r} is no plain file name")
        if name == main:
            raise ArgumentsRefused(f"`files`: {name!r} is the name of the program itself")
    files = {name: text.encode() for name, text in given.files.items()}
    files[main] = _unfenced(given.code).encode()
    size = sum(map(len, files.values())) + len(given.stdin.encode())
    if size > most:
        raise ArgumentsRefused(f"code, stdin and files have {size:,} bytes together, at most {most:,} are taken")
    return files


def _unfenced(code: str) -> str:
    """Without the fence that models put around programs."""
    text = code.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") + 1 : -3]
    return code


_MOST_FILES = 50
"""Files that are named."""


def outcome(ran: JobResult, limits: Limits, *, given: Mapping[str, int]) -> Body:
    """The result. `given`: sizes of the files that were there at the beginning; they count as written once changed."""
    written = [(name, size) for name, size in sorted(ran.files.items()) if given.get(name) != size]
    stdout, stderr = decoded(ran.stdout, is_cut=bool(ran.cut[0])), decoded(ran.stderr, is_cut=bool(ran.cut[1]))
    how = describe_end(ran, limits)
    value: dict[str, Any] = {
        "ended": ran.ended,
        "exitCode": ran.code if ran.ended == "exit" else None,
        "stdout": stdout,
        "stderr": stderr,
        "cut": {"stdout": ran.cut[0], "stderr": ran.cut[1]},
        "files": [{"name": name, "size": size} for name, size in written],
        "seconds": round(ran.seconds, 3),
    }
    lines = [how and f"The program failed: {how}", *_stream("stdout", stdout, ran.stdout, ran.cut[0], is_plain=not how)]
    lines += _stream("stderr", stderr, ran.stderr, ran.cut[1], is_plain=False)
    if written:
        lines.append(_files_line(written))
    text = "\n".join(part for part in lines if part) or "The program ended and printed nothing."
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "structuredContent": value}
    if how:
        result["isError"] = True
    return Body(encode({**result, "_meta": {SANDBOX: ran.tier}}))


def _stream(name: str, text: str, data: bytes, cut: int, *, is_plain: bool) -> list[str]:
    """`is_plain`: without a heading."""
    if not text.strip() and not cut:
        return []
    return ["" if is_plain else f"{name}:", text.rstrip("\n"), describe_cut(name, len(data), cut)]


def _files_line(written: list[tuple[str, int]]) -> str:
    named = ", ".join(f"{name} ({size:,} bytes)" for name, size in written[:_MOST_FILES])
    more = len(written) - _MOST_FILES
    return f"files: {named}{f' and {more} more' if more > 0 else ''}"


log = get_logger("mcpbridge.code")

NAME = "code-execute"

_OVERHEAD_SECONDS = 15.0
"""Seconds beside those of the program, to prepare it and to report the outcome."""
_NOT_YET = "it is being found out whether there is a sandbox for it"
_TITLES: Mapping[Language, str] = {"python": "Python 3", "javascript": "JavaScript (Node.js)", "shell": "shell (sh)"}

_decode = msgspec.json.Decoder(CodeArguments).decode


class CodeExecute:
    """The tool."""

    def __init__(self, settings: CodeExecuteSettings, runner: Runner, *, path: str | None = None) -> None:
        """`path`: a PATH, to look for interpreters in. Left out: that of the bridge."""
        self._settings = settings
        self._runner = outside() if settings.sandbox == "off" else runner
        self._limits, self._access, self._env = rights_of(
            runner, settings.sandbox if settings.sandbox != "off" else None
        )
        self._path = path if path is not None else os.environ.get("PATH", os.defpath)
        self._why_not = _NOT_YET

    @property
    def is_ready(self) -> bool:
        """Whether it is to be listed."""
        return not self._why_not

    @property
    def is_settled(self) -> bool:
        """Whether that has been found out."""
        return self._why_not != _NOT_YET

    @property
    def why_not(self) -> str:
        """Why it is not to be listed; empty when it is."""
        return self._why_not

    async def prepare(self) -> None:
        """Find out whether it is to be listed. The first time in a while the sandbox is tried out: seconds."""
        try:
            await self._ready_to_run()
        except ToolInactive as inactive:
            self._why_not = inactive.why
        except Exception as error:  # whatever it is, it must not end what else runs
            log.error("the check for a sandbox failed", exc_info=error)
            self._why_not = f"it could not be found out whether there is a sandbox ({type(error).__name__})"
        else:
            self._why_not = ""

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """Meanwhile it is found out whether it is to be listed; `changed` is called when that is known."""

        async def find_out() -> None:
            await self.prepare()
            changed()

        task = asyncio.create_task(find_out(), name="is code-execute ready")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @property
    def definition(self) -> dict[str, Any]:
        """See `Builtin`. It offers the languages that there is a program for."""
        return {
            "name": NAME,
            "title": "Run a program",
            "description": self._description,
            "inputSchema": self._schema,
            "annotations": {
                "readOnlyHint": False,
                "destructiveHint": self._reaches_files,
                "idempotentHint": False,
                "openWorldHint": self._access.network or self._runner.is_off,
            },
        }

    @property
    def treatment(self) -> CallSettings:
        """See `Builtin`. The sandbox is what protects; without it a person is asked each time."""
        return CallSettings(
            permission="require_approval" if self._runner.is_off else "allow",
            risk="high",
            read_only=False,
            destructive=self._reaches_files,
            idempotent=False,
            call_timeout=self._limits.timeout + _OVERHEAD_SECONDS,
            max_call_timeout=self._limits.timeout + _OVERHEAD_SECONDS,
            side_effects="serial" if self._reaches_files else "parallel",
        )

    async def run(self, call: Call) -> Body:
        """See `Builtin`. Cancelled, the program ends.

        Raises:
            ToolInactive: no sandbox is ready, or nothing runs this language.
            ArgumentsRefused: they are too large, or a file has a name that is none.
        """
        given = _arguments(call)
        interpreter = self._of(given.language, await self._ready_to_run())
        file = interpreter.file_for(given.code)
        files = checked(given, file, self._settings.max_input)
        limits = self._limits
        if given.timeout is not None:
            limits = replace(limits, timeout=min(given.timeout, limits.timeout))
        access = replace(self._access, read_only=(*self._access.read_only, *interpreter.read_only))
        job = Job(
            argv=interpreter.argv(file, memory=limits.memory),
            env=self._env,
            stdin=given.stdin.encode(),
            files=files,
            limits=limits,
            access=access,
        )
        try:
            ran = await self._runner.run(job)
        except OSError as error:
            raise ToolInactive(NAME, str(error), _fix("interpreters")) from error
        return outcome(ran, limits, given={name: len(data) for name, data in files.items()})

    async def _ready_to_run(self) -> Mapping[Language, Interpreter]:
        """The interpreters, if there is a sandbox for them.

        Raises:
            ToolInactive: there is none, or nothing to run in it.
        """
        missing = await why_none(self._runner)
        if missing is not None:
            raise ToolInactive(NAME, *missing)
        interpreters = await asyncio.to_thread(lambda: self._interpreters)
        if not interpreters:
            raise ToolInactive(NAME, f"nothing here runs {_joined(self._settings.languages)}", _fix("interpreters"))
        return interpreters

    def _of(self, language: Language, interpreters: Mapping[Language, Interpreter]) -> Interpreter:
        if language in interpreters:
            return interpreters[language]
        if language in self._settings.languages:
            raise ToolInactive(NAME, f"nothing here runs {_TITLES[language]}", _fix("interpreters"))
        raise ToolInactive(NAME, f"{_TITLES[language]} is not switched on", _fix("languages"))

    @cached_property
    def _interpreters(self) -> Mapping[Language, Interpreter]:
        return find_interpreters(self._settings.languages, self._settings.interpreters, self._path)

    @property
    def _reaches_files(self) -> bool:
        return bool(self._access.read_write) or self._runner.is_off

    @property
    def _description(self) -> str:
        limits, access = self._limits, self._access
        where = "with all rights of the user" if self._runner.is_off else "in a sandbox"
        network = "the network" if access.network or self._runner.is_off else "no network"
        lines = (
            f"Run a program {where}: {_joined(self._interpreters)}. It has {network}, an empty "
            f"folder to work in that is removed afterwards, {show_seconds(limits.timeout)} and "
            f"{show_bytes(limits.memory)} of memory. Answers with what it prints, so print what matters."
        )
        reachable = [*access.read_only, *access.read_write]
        return f"{lines} It can also read {', '.join(reachable)}." if reachable else lines

    @property
    def _schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {
                "language": {"type": "string", "enum": list(self._interpreters)},
                "code": {"type": "string", "minLength": 1},
                "stdin": {"type": "string", "description": "What it reads on standard input."},
                "files": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "description": "Text files to put into its folder, by name.",
                },
                "timeout": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": self._limits.timeout,
                    "description": "Seconds.",
                },
            },
            "required": ["language", "code"],
            "additionalProperties": False,
        }


def _joined(languages: Iterable[Language]) -> str:
    return ", ".join(_TITLES[language] for language in languages)


def _fix(key: str) -> str:
    return f"Whoever runs the bridge can change that: `builtin.code_execute.{key}`."


def _arguments(call: Call) -> CodeArguments:
    arguments = call.params.inner("arguments")
    try:
        return _decode(arguments.data if arguments is not None else b"{}")
    except msgspec.DecodeError as error:
        raise ArgumentsRefused(f"{NAME}: {error}") from error
