"""Changes the text of `servers.toml` and leaves all else as it is: comments, order, spelling. No I/O.

The result is only text. Whoever writes it to the file checks it before (`write_servers_toml.py`).
"""

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from glob import escape
from typing import Any, Literal, cast

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.suggestions import nearest

Section = Literal["servers", "tools"]


def put_table(text: str, section: Section, name: str, table: Mapping[str, Any], *, may_replace: bool = False) -> str:
    """The text with `[section.name]` in it, at the end of its section.

    Raises:
        ConfigError: there is one already, the text is no TOML, or the table cannot be said in TOML.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    document = _parsed(text)
    of_section = _section(document, section)
    if name in of_section and not may_replace:
        raise ConfigError("there is one already", key=f"{section}.{name}", hint="Take another name, or `--replace` it.")
    try:
        if name not in of_section and not document.get(section) and section not in document:
            document[section] = tomlkit.table(is_super_table=True)
            of_section = document[section]
        of_section[name] = _table(table)
        after = _ended(tomlkit.dumps(document))
    except (TOMLKitError, ValueError, TypeError) as error:
        raise ConfigError(f"cannot be written as TOML: {error}", key=f"{section}.{name}") from error
    _refuse_more(text, after, section, name, table)
    return after


def _refuse_more(before: str, after: str, section: Section, name: str, table: Mapping[str, Any]) -> None:
    """Make sure that the text says this now, and nothing else anew: what it is may come from far away."""
    try:
        was, now = (tomllib.loads(text.replace("\r\n", "\n")) for text in (before, after))
    except ValueError as error:
        raise ConfigError(f"cannot be written as TOML: {error}", key=f"{section}.{name}") from error
    written = now.get(section, {}).pop(name, None)
    was.get(section, {}).pop(name, None)
    for document in (was, now):
        if not document.get(section):
            document.pop(section, None)
    if was != now or written != _without_none(table):
        raise ConfigError("cannot be written as TOML as it is", key=f"{section}.{name}")


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {key: _without_none(inner) for key, inner in members.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_without_none(inner) for inner in cast("list[Any]", value)]
    return value


def remove_table(text: str, section: Section, name: str) -> str:
    """The text without `[section.name]` and the comments inside of it.

    Raises:
        ConfigError: there is none.
    """
    import tomlkit

    document = _parsed(text)
    of_section = _required(document, section, name)
    del of_section[name]
    if not of_section:
        del document[section]
    return _ended(_with_comments_of_the_next(text, tomlkit.dumps(document)))


def _with_comments_of_the_next(before: str, after: str) -> str:
    """What was removed may end with comments that are about what comes behind it: behind the last empty line."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    start, end = _same(old, new), _same(old[::-1], new[::-1])
    start = min(start, len(new) - end) if end <= len(new) else start
    gone = old[start : len(old) - end]
    if old[:start] + old[len(old) - end :] != new:
        return after  # several pieces
    kept: list[str] = []
    while gone and (not gone[-1].strip() or gone[-1].lstrip().startswith("#")):
        kept.insert(0, gone.pop())
    while kept and kept[0].strip():  # right behind what was removed: about that
        kept.pop(0)
    told = "".join(kept).lstrip("\r\n")
    return "".join(new[:start]) + told + "".join(new[start:]) if "#" in told else after


def _same(one: list[str], other: list[str]) -> int:
    """How many lines at the beginning are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def switch(text: str, section: Section, name: str, *, on: bool, tool: str = "") -> str:
    """The text with a server or tool, or one tool of a server, switched on or off.

    Raises:
        ConfigError: there is no such server or tool in it.
    """
    import tomlkit

    document = _parsed(text)
    holder = _required(document, section, name)[name]
    if tool:
        tools = holder.get("tool")
        if tools is None:
            if on:
                return text
            holder["tool"] = tomlkit.table(is_super_table=True)
            tools = holder["tool"]
        if tool not in tools:
            if on:
                return text
            tools[tool] = tomlkit.table()
        holder = tools[tool]
    if on:
        if "disabled" not in holder:
            return text
        del holder["disabled"]
    else:
        holder["disabled"] = True
    return _ended(tomlkit.dumps(document))


def add_http_token(text: str, name: str, sha256: str, **rights: bool) -> str:
    """The text with another token for HTTP: its holder, its digest, and the rights that are true.

    Raises:
        ConfigError: somebody of this name has a token already, or the text is no TOML.
    """
    import tomlkit

    document = _parsed(text)
    http = document.setdefault("http", tomlkit.table())
    tokens: Any = http.get("tokens")
    if _holder(tokens, name) is not None:
        raise ConfigError("there is a token of this name", key="http.tokens", hint="Revoke it, or take another name.")
    made: Any = tomlkit.table()
    made.update({"name": name, "sha256": sha256, **{right: True for right, given in rights.items() if given}})
    if tokens is None:
        http["tokens"] = tokens = tomlkit.aot()
    tokens.append(made)
    return _ended(tomlkit.dumps(document))


def remove_http_token(text: str, name: str) -> str:
    """The text without the token of this holder.

    Raises:
        ConfigError: nobody of this name has one.
    """
    import tomlkit

    document = _parsed(text)
    tokens: Any = document.get("http", {}).get("tokens")
    at = _holder(tokens, name)
    if at is None:
        raise ConfigError("there is no token of this name", key="http.tokens")
    del tokens[at]
    if not tokens:
        del document["http"]["tokens"]
    return _ended(tomlkit.dumps(document))


def _holder(tokens: Any, name: str) -> int | None:
    """Which of the tokens is this holder's."""
    listed = cast("list[Mapping[str, Any]]", tokens or [])
    return next((at for at, token in enumerate(listed) if str(token.get("name")) == name), None)


Listing = Literal["pin", "hide", "auto"]
"""Whether a tool is listed: in any case, never, or as the mode decides."""

_LISTS: Mapping[Listing, str] = {"pin": "pins", "hide": "hide"}


def list_tool(text: str, tool: str, listing: Listing) -> str:
    """The text in which `[expose]` pins the tool with this id, hides it, or does neither.

    Raises:
        ConfigError: the text is no TOML, or a glob of `[expose]` pins or hides it together with others.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    document, wanted = _parsed(text), _lists(text)
    for key, globs in wanted.items():
        _change_globs(key, globs, tool, listing)
    expose: Any = document.get("expose")
    try:
        for key, globs in wanted.items():
            held: Any = expose.get(key) if expose is not None else None
            if held is None:
                if not globs:
                    continue
                if expose is None:
                    document["expose"] = expose = tomlkit.table()
                expose[key] = held = tomlkit.array()
            for one in [str(one) for one in held if str(one) not in globs]:
                held.remove(one)
            for one in [one for one in globs if one not in held]:
                held.append(one)
        after = _ended(tomlkit.dumps(document))
    except (TOMLKitError, ValueError, TypeError) as error:
        raise ConfigError(f"cannot be written as TOML: {error}", key="expose") from error
    if _lists(after) != wanted or _without_lists(after) != _without_lists(text):
        raise ConfigError("cannot be written as TOML as it is", key="expose")
    return after


def _change_globs(key: str, globs: list[str], tool: str, listing: Listing) -> None:
    exact = escape(tool)
    if key == _LISTS.get(listing):
        if not any(fnmatchcase(tool, glob) for glob in globs):
            globs.append(exact)
        return
    globs[:] = [glob for glob in globs if glob not in (exact, tool)]
    if (key, listing) == ("hide", "pin"):
        return  # a pin comes before what hides
    for glob in globs:
        if fnmatchcase(tool, glob):
            hint = "Change the list in the file: it is about other tools, too."
            raise ConfigError(f"`{glob}` is about {tool} as well", key=f"expose.{key}", hint=hint)


def _lists(text: str) -> dict[str, list[str]]:
    expose = _plain(text).get("expose", {})
    return {key: [str(glob) for glob in expose.get(key, ())] for key in _LISTS.values()}


def _without_lists(text: str) -> dict[str, Any]:
    document = _plain(text)
    expose = {key: value for key, value in document.pop("expose", {}).items() if key not in _LISTS.values()}
    return {**document, **({"expose": expose} if expose else {})}


def _plain(text: str) -> dict[str, Any]:
    return tomllib.loads(text.replace("\r\n", "\n"))


def _parsed(text: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise ConfigError(f"not TOML: {error}") from error


def _section(document: Any, section: Section) -> Any:
    found = document.get(section)
    return found if found is not None else {}


def _required(document: Any, section: Section, name: str) -> Any:
    of_section = _section(document, section)
    if name not in of_section:
        close = nearest(name, of_section, limit=1)
        hint = f"Did you mean `{close[0]}`?" if close else ""
        raise ConfigError("there is no such table", key=f"{section}.{name}", hint=hint or None)
    return of_section


def _table(table: Mapping[str, Any]) -> Any:
    import tomlkit

    made: Any = tomlkit.table()
    for key, value in table.items():
        if value is not None:
            made[key] = _value(value)
    return made


def _value(value: Any) -> Any:
    return _inline(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value


def _inline(value: Mapping[str, Any]) -> Any:
    import tomlkit

    made: Any = tomlkit.inline_table()
    for key, inner in value.items():
        if inner is not None:
            made[key] = _value(inner)
    return made


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"
