"""`mcpbridge add`, `remove`, `enable` and `disable`: change the configuration, once checked as a whole."""

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import click
from msgspec import Struct

from mcpbridge.app.cli.config.config_path import configuration_to_write
from mcpbridge.app.cli.config.overlay import Wish, changes_over, holds_against, how_to_undo
from mcpbridge.app.cli.failures import CommandFailed, fail
from mcpbridge.app.cli.options import as_json_option, config_option, dry_run_option
from mcpbridge.app.cli.output import note, print_json, print_text, progress, visible
from mcpbridge.app.cli.running_bridges import survey
from mcpbridge.app.cli.server_states import describe_change
from mcpbridge.app.doctor.fix import difference
from mcpbridge.app.exit_codes import OK, USAGE
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.suggestions import nearest
from mcpbridge.config.edit_servers_toml import switch
from mcpbridge.config.files.write_file import decoded, read_bytes
from mcpbridge.config.write_servers_toml import prepared, write
from mcpbridge.core.model import BUILTIN, TOOLS
from mcpbridge.engine.registry.http_rules import Section
from mcpbridge.tools.builtin.base_settings import NAMES

_PATIENCE = 60.0


class What(Struct, frozen=True):
    """What a command changes, and what that is to come to."""

    section: Section
    name: str
    wish: Wish
    tool: str = ""
    """One tool of it; empty: the whole."""


def switch_named(name: str, config: str | None, *, to: Literal["on", "off"], is_dry: bool, json_format: str) -> None:
    """Switch on or off what a name stands for in the configuration. Raises as `change`."""
    path = configuration_to_write(config, os.environ)
    section, owner, tool = owner_of(path, name)
    change(
        path,
        lambda text: switch(text, section, owner, on=to == "on", tool=tool),
        What(section, owner, to, tool),
        done=f"{name} is switched {to}",
        is_dry=is_dry,
        json_format=json_format,
    )


def change(
    path: Path,
    edit: Callable[[str], str],
    what: What,
    *,
    done: str,
    is_dry: bool,
    json_format: str,
    try_out: Callable[[], Mapping[str, Any] | None] = lambda: None,
) -> None:
    """Change the configuration and say what was `done`. Running bridges take it in; a wrong change changes nothing.

    `json_format`: of the document to print; empty: say it for people. `try_out` says of what was changed whether it
    works; it is asked once the change is written.

    Raises:
        ConfigError: the file, or what it would come to, is wrong, or it cannot be written.
        CommandFailed: it has no effect, since something else was said over the API or by a program.
    """
    change = prepared(path, edit, os.environ)
    before, after, named, path = change.before, change.after, path, change.path
    if change.loaded is not None and not is_dry:
        write(change, os.environ)
    heard = [] if is_dry or after == before else _reload_bridges(path)
    check = None if is_dry or after == before else try_out()
    _show(path, before, after, heard, check, done=done, is_dry=is_dry, json_format=json_format)
    if check is not None and not json_format:
        _show_check(what, check)
    if not is_dry:
        _require_effect(named, what)


def _show(
    path: Path,
    before: str,
    after: str,
    heard: Sequence[Mapping[str, object]],
    check: Mapping[str, Any] | None,
    *,
    done: str,
    is_dry: bool,
    json_format: str,
) -> None:
    if json_format:
        print_json(
            json_format,
            {
                "config": str(path),
                "changed": after != before,
                "written": after != before and not is_dry,
                "bridges": heard,
                **({"check": check} if check is not None else {}),
            },
        )
        return
    if after == before:
        print_text(f"nothing to change in {path}")
        return
    print_text(f"{'would change' if is_dry else 'changed'} {path}: {done}")
    if is_dry:
        print_text(difference(before, after, path.name))
    for one in heard:
        told_wrong = cast("Mapping[str, object]", one.get("config_error") or {})
        pid, wrong = one.get("pid"), one.get("error") or told_wrong.get("message")
        print_text(visible(f"process {pid}: {wrong}" if wrong else f"process {pid} has taken it in"))


def _show_check(what: What, check: Mapping[str, Any]) -> None:
    detail = f": {check['detail']}" if check["detail"] else ""
    print_text(visible(f"{what.name} {'works' if check['ok'] else 'does not work'}{detail}"))
    if not check["ok"]:
        advice = f"; `mcpbridge doctor {what.name}` says what to do" if what.section == "servers" else ""
        note(f"it is in the file all the same{advice}")


def _require_effect(path: Path, what: What) -> None:
    """Look whether something lies over the file that is in the way."""
    for said in changes_over(path):
        is_it = (said["section"], said["name"]) == (what.section, what.name)
        if is_it and holds_against(said, what.tool, what.wish):
            advice = how_to_undo(said, what.tool, what.wish)
            fail(USAGE, visible(f"it has no effect on bridges: {describe_change(said)}"), visible(advice))


def _reload_bridges(path: Path) -> list[dict[str, object]]:
    """What running bridges say to it."""
    with progress("waiting for the bridges to take it in …"):
        return [dict(one.ask("reload", patience=_PATIENCE, may_be_empty=True)) for one in survey(path).bridges]


def owner_of(path: Path, name: str) -> tuple[Section, str, str]:
    """Where a name is in the configuration: section, table, and the tool of it that is meant; empty: the whole."""
    import tomllib

    data = read_bytes(path.resolve())
    try:
        document = tomllib.loads(decoded(data, path).replace("\r\n", "\n")) if data is not None else {}
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}", file=str(path)) from error
    servers, tools = document.get("servers", {}), document.get("tools", {})
    head, _, rest = name.partition("/")
    if head == TOOLS and rest in tools:
        return "tools", rest, ""
    sections: list[tuple[Section, dict[str, object]]] = [("servers", servers), ("tools", tools)]
    for section, known in sections:
        if name in known:
            return section, name, ""
        if rest and head in known:
            return section, head, rest
    names = [*servers, *(f"{TOOLS}/{tool}" for tool in tools)]
    close = nearest(name, names, limit=1)
    advice = f"Did you mean `{close[0]}`?" if close else f"There are: {', '.join(names) or 'none'}."
    advice = next(_elsewhere(path, document, name), advice)
    raise CommandFailed(USAGE, visible(f"{path} has no server or tool {name[:100]!r}"), visible(advice))


def _elsewhere(path: Path, document: Mapping[str, Any], name: str) -> Iterator[str]:
    """Where a name stands that is in neither section, and what can be done there."""
    head = name.removeprefix(f"{TOOLS}/").partition("/")[0]
    if (own := name.removeprefix(f"{BUILTIN}/")) in NAMES:
        yield f"`{own}` is a built-in tool: it is there if `builtin.enable` names it."
    for pack in _texts(document.get("packs")):
        from mcpbridge.tools.settings import pack_name

        if pack_name(pack) == head:
            yield f"{head!r} is the pack {pack!r}: it is there if `packs` names it."
    for said in changes_over(path):
        if said["name"] == head:
            yield f"{describe_change(said)}. `DELETE /api/{said['section']}/{head}` takes it out."
    if specs := _texts(document.get("spec")):
        from mcpbridge.config.load import read

        if head in read(path, os.environ).settings.tools:
            yield f"{head!r} is described in a file of `spec` ({', '.join(specs)}): change it there."


def _texts(value: object) -> list[str]:
    return [one for one in cast("list[object]", value) if isinstance(one, str)] if isinstance(value, list) else []


@click.command("add", context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("what", nargs=-1)
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="A variable of the program; may be repeated.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header for the URL; may be repeated.")
@click.option("--tool", "is_tool", is_flag=True, help="A tool that is not behind an MCP server: [tools.NAME].")
@click.option("--set", "keys", multiple=True, metavar="KEY=VALUE", help="Any key of its table, as TOML or text.")
@click.option("--table", metavar="JSON", help="The whole table, as a JSON object.")
@click.option("--replace", "may_replace", is_flag=True, help="Also in the place of one with this name.")
@click.option("--no-check", is_flag=True, help="Do not start it to see whether it works.")
@dry_run_option
@config_option
@as_json_option
def add_command(
    *,
    name: str,
    what: tuple[str, ...],
    env: tuple[str, ...],
    headers: tuple[str, ...],
    is_tool: bool,
    keys: tuple[str, ...],
    table: str | None,
    may_replace: bool,
    no_check: bool,
    is_dry: bool,
    config: str | None,
    as_json: bool,
) -> int:
    """Add a server, or with --tool a tool, to servers.toml. Comments stay, and running bridges take it in at once.

    Write secrets as ${VAR}, in single quotes.

    It is started once, alone, and you read whether it works. It stays in the file if not.

    \u0008
    Examples:
      mcpbridge add time -- uvx mcp-server-time
      mcpbridge add stripe https://mcp.stripe.com --header 'Authorization=Bearer ${STRIPE_SECRET_KEY}'
      mcpbridge add --tool weather --set endpoint='https://api.example.com/weather/{city}'
    """
    from mcpbridge.app.cli.config.config_path import configuration_to_write
    from mcpbridge.config.edit_servers_toml import put_table

    made = _table(what, is_tool=is_tool, env=env, headers=headers, keys=keys, table=table)
    section = "tools" if is_tool else "servers"
    path = configuration_to_write(config, os.environ)
    change(
        path,
        lambda text: put_table(text, section, name, made, may_replace=may_replace),
        What(section, name, "there"),
        done=f"{section}.{name} is there",
        is_dry=is_dry,
        json_format="add/1" if as_json else "",
        try_out=lambda: None if no_check else _try_out(name, config, is_tool=is_tool),
    )
    return OK


def _try_out(name: str, config: str | None, *, is_tool: bool) -> Mapping[str, Any] | None:
    from mcpbridge.app.cli.config.check import try_out  # knows all settings, which takes a while to load

    return try_out(name, config, is_tool=is_tool)


def _table(
    what: tuple[str, ...],
    *,
    is_tool: bool,
    env: tuple[str, ...],
    headers: tuple[str, ...],
    keys: tuple[str, ...],
    table: str | None,
) -> dict[str, Any]:
    made: dict[str, Any] = _object(table) if table else {}
    if what:
        first, *rest = what
        is_url = "://" in first
        if is_url and rest:
            fail(USAGE, f"nothing may follow the URL: {rest[0]!r}", "A command goes behind `--`.")
        if is_url:
            made["endpoint" if is_tool else "url"] = first
        elif is_tool:
            made["command"] = [first, *rest]
        else:
            made |= {"command": first, **({"args": rest} if rest else {})}
    for pairs, key in ((env, "env"), (headers, "headers")):
        if pairs:
            made[key] = {**made.get(key, {}), **dict(_pair(pair, f"--{key.removesuffix('s')}") for pair in pairs)}
    for pair in keys:
        key, value = _pair(pair, "--set")
        _put(made, key.split("."), _value(value))
    if not made:
        advice = "Give a URL, a command behind `--`, or --set KEY=VALUE."
        fail(USAGE, "there is nothing to add", advice)
    return made


def _put(table: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        table = table.setdefault(key, {})
    table[keys[-1]] = value


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        fail(USAGE, f"{option} takes NAME=VALUE, not {name[:40]!r}")
    return name, value


def _value(text: str) -> Any:
    """`30`, `true`, `["a"]` and `{a = 1}` as TOML has them; everything else is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _object(text: str) -> dict[str, Any]:
    try:
        found: object = json.loads(text)
    except ValueError as error:
        fail(USAGE, f"--table is no JSON: {error}")
    if not isinstance(found, dict):
        fail(USAGE, "--table takes a JSON object")
    return cast("dict[str, Any]", found)


@click.command("remove")
@click.argument("name")
@dry_run_option
@config_option
@as_json_option
def remove_command(*, name: str, is_dry: bool, config: str | None, as_json: bool) -> int:
    """Remove a server or a tool from servers.toml. A copy of the file is kept, and running bridges follow at once.

    \u0008
    Examples:
      mcpbridge remove github
      mcpbridge remove tools/weather --dry-run
    """
    from mcpbridge.app.cli.config.config_path import configuration_to_write
    from mcpbridge.config.edit_servers_toml import remove_table

    path = configuration_to_write(config, os.environ)
    section, owner, tool = owner_of(path, name)
    if tool:
        fail(USAGE, f"{tool!r} is one tool of the server {owner!r}", f"`mcpbridge disable {name}` switches it off.")
    change(
        path,
        lambda text: remove_table(text, section, owner),
        What(section, owner, "gone"),
        done=f"{name} is out",
        is_dry=is_dry,
        json_format="remove/1" if as_json else "",
    )
    return OK


@click.command("enable")
@click.argument("name")
@dry_run_option
@config_option
@as_json_option
def enable_command(*, name: str, is_dry: bool, config: str | None, as_json: bool) -> int:
    """Switch on a server (`github`), a tool (`tools/weather`) or one tool of a server (`github/create_issue`).

    Running bridges follow at once.

    \u0008
    Examples:
      mcpbridge enable github
    """
    switch_named(name, config, to="on", is_dry=is_dry, json_format="enable/1" if as_json else "")
    return OK


@click.command("disable")
@click.argument("name")
@dry_run_option
@config_option
@as_json_option
def disable_command(*, name: str, is_dry: bool, config: str | None, as_json: bool) -> int:
    """Switch off a server (`github`), a tool (`tools/weather`) or one tool of a server (`github/create_issue`).

    Running bridges follow at once.

    \u0008
    Examples:
      mcpbridge disable github/delete_repository
    """
    switch_named(name, config, to="off", is_dry=is_dry, json_format="disable/1" if as_json else "")
    return OK
