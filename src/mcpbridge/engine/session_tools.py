"""Resolvers as programs write them: functions that give tools of any kind for a client, a session or a run.

Tools that single runs have: no other run gets at them, and no client.

A function may know what only its user may know, so what is given to one run is not put into the catalog.

What a program says in a request, as JSON; what is none is refused by its name, before anything is sent.

The names that a program gives its requests: of a run, of a user, of a tenant.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import ArgumentsRefused, ConfigError
from mcpbridge.core.context import Session, short
from mcpbridge.core.tool_calls import ToolCall
from mcpbridge.downstream.requests.session_tools import ExtraTools, Resolve, ResolverContext
from mcpbridge.protocol.meta import CONTEXT
from mcpbridge.tools.python.output import Misshapen, json_of

if TYPE_CHECKING:
    from mcpbridge.tools.backend import Backend


Resolver = Callable[[ResolverContext], "Sequence[Any] | Awaitable[Sequence[Any]]"]
"""Gives the further tools of one client, session or run: functions, what `tool` and its like make, or backends."""


BackendOf = Callable[[Any], "Backend"]
"""The backend of what a program gives as a tool."""


def resolving(resolver: Resolver, backend_of: BackendOf) -> Resolve:
    """The same as the bridge asks it."""

    async def resolve(context: ResolverContext) -> "Sequence[Backend]":
        found = resolver(context)
        tools = await found if inspect.isawaitable(found) else found
        return [backend_of(tool) for tool in tools]

    return resolve


def together(resolve: Resolve | None, tools: Sequence[Any], backend_of: BackendOf) -> Resolve:
    """A resolver that gives these tools besides what another one gives."""

    async def resolve_both(context: ResolverContext) -> "Sequence[Backend]":
        found = await resolve(context) if resolve is not None else ()
        return [*found, *map(backend_of, tools)]

    return resolve_both


class RunTools:
    """What the runs of one bridge have besides. It lasts as long as their sessions."""

    def __init__(
        self, extra: ExtraTools, session_of: Callable[[str, str, str], Session], backend_of: BackendOf
    ) -> None:
        """`session_of` gives the session of a run, by user, run and tenant."""
        self._extra, self._session_of, self._backend_of = extra, session_of, backend_of
        self._lent: WeakKeyDictionary[Session, dict[str, Any]] = WeakKeyDictionary()
        self._resolvers: WeakKeyDictionary[Session, Resolve] = WeakKeyDictionary()

    def lend(self, user: str, run: str, tenant: str, name: str, tool: Any) -> None:
        """The run has this tool from here on, in the place of one of the same name."""
        session = self._session_of(user, run, tenant)
        lent = self._lent.setdefault(session, {})
        if lent.get(name) is not tool:
            lent[name] = tool
            self._give(session)

    def resolve(self, user: str, run: str, tenant: str, resolver: Resolver) -> None:
        """The run has a resolver of its own, in place of the bridge's."""
        session = self._session_of(user, run, tenant)
        self._resolvers[session] = resolving(resolver, self._backend_of)
        self._give(session)

    def _give(self, session: Session) -> None:
        resolve = self._resolvers.get(session, self._extra.resolve)
        lent = tuple(self._lent.get(session, {}).values())
        self._extra.give(session, together(resolve, lent, self._backend_of))


_encode = msgspec.json.Encoder(decimal_format="number").encode
"""Numbers that no Python number is came as `Decimal`, and go as they came."""


def encoded(value: object) -> bytes:
    """Arguments or a result as JSON, also what is nested deeply; models, dataclasses and so on as pydantic writes them.

    Raises:
        Misshapen: it is none.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):  # models, or no JSON at all
        return json_of(value)


def arguments_json(call: ToolCall[Any, Any]) -> Raw:
    """The arguments of a call.

    Raises:
        ArgumentsRefused: they are no JSON; names the one that is none.
    """
    try:
        return Raw(encoded(call.arguments))
    except Misshapen as error:
        arguments: object = call.arguments
        if isinstance(arguments, Mapping):
            _members(cast("Mapping[object, object]", arguments), f"the argument {{}} of {call.name[:200]}")
        raise ArgumentsRefused(f"The arguments of {call.name[:200]} are no JSON: {error}") from error


def params_json(params: Mapping[str, Any]) -> Raw:
    """The params of a request that are no plain JSON.

    Raises:
        ArgumentsRefused: they are none at all; names the member that is none.
    """
    said: dict[str, Any] = {}
    for name, value in params.items():
        if name == "arguments" and isinstance(value, Mapping):
            said[name] = _members(cast("Mapping[object, object]", value), "the argument {}")
        elif name == "_meta" and isinstance(value, Mapping):
            said[name] = _meta_json(cast("Mapping[str, object]", value))
        else:
            said[name] = _one(value, f"`{name}` of the request")
    return _one(said, "the request")


def _meta_json(meta: Mapping[str, object]) -> dict[str, Any]:
    return {
        name: _context_json(cast("Mapping[str, object]", value))
        if name == CONTEXT and isinstance(value, Mapping)
        else _one(value, f"`{name}` in the `_meta` of the request")
        for name, value in meta.items()
    }


def _context_json(context: Mapping[str, object]) -> Mapping[str, object]:
    metadata = context.get("metadata")
    if not isinstance(metadata, Mapping):
        return context
    return {**context, "metadata": _members(cast("Mapping[object, object]", metadata), "the metadata {}")}


def _members(values: Mapping[object, object], named: str) -> dict[object, Raw]:
    """Each as JSON; `named` says what one is, by its name."""
    return {name: _one(value, named.format(repr(name)[:200])) for name, value in values.items()}


def _one(value: object, what: str) -> Raw:
    if isinstance(value, Raw):
        return value
    try:
        return Raw(encoded(value))
    except Misshapen as error:
        raise ArgumentsRefused(f"{what[0].upper()}{what[1:]} is no JSON: {error}") from error


def check_names(*, run: str = "", user: str = "", tenant: str = "") -> None:
    """Refuse names that would count as none: what a program says by mistake, it should hear.

    Raises:
        ConfigError: one is too long.
    """
    for key, name in (("run", run), ("user", user), ("tenant", tenant)):
        if name and not short(name):
            told = f"it has {len(name)} characters" if isinstance(name, str) else f"it is {type(name).__name__}"  # pyright: ignore[reportUnnecessaryIsInstance] - of programs without types
            raise ConfigError(f"{told}, and a name is a text of at most 200", key=key)
