"""`mcpbridge add`: put a server or a tool into the configuration."""

import json
import os
import tomllib
from typing import Any, cast

import click

from mcpbridge.cli.exits import OK, USAGE, fail
from mcpbridge.cli.options import as_json_option, config_option, dry_run_option

__all__ = ["command"]


@click.command("add", context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("what", nargs=-1)
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="A variable of the program; may be repeated.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header for the URL; may be repeated.")
@click.option("--tool", "is_tool", is_flag=True, help="A tool that is not behind an MCP server: [tools.NAME].")
@click.option("--set", "keys", multiple=True, metavar="KEY=VALUE", help="Any key of its table, as TOML or text.")
@click.option("--table", metavar="JSON", help="The whole table, as a JSON object.")
@click.option("--replace", "may_replace", is_flag=True, help="Also in the place of one with this name.")
@dry_run_option
@config_option
@as_json_option
def command(
    *,
    name: str,
    what: tuple[str, ...],
    env: tuple[str, ...],
    headers: tuple[str, ...],
    is_tool: bool,
    keys: tuple[str, ...],
    table: str | None,
    may_replace: bool,
    is_dry: bool,
    config: str | None,
    as_json: bool,
) -> int:
    """Put a server, or with --tool a tool, into servers.toml; comments stay. Running bridges take it in.

    \u0008
    mcpbridge add time -- uvx mcp-server-time
    mcpbridge add stripe https://mcp.stripe.com --header 'Authorization=Bearer ${STRIPE_SECRET_KEY}'
    mcpbridge add --tool weather --set endpoint='https://api.example.com/weather/{city}'
    """
    from mcpbridge.cli.changing import What, change
    from mcpbridge.cli.launching import configuration_to_write
    from mcpbridge.config.editing import put_table

    made = _table(what, is_tool=is_tool, env=env, headers=headers, keys=keys, table=table)
    section = "tools" if is_tool else "servers"
    path = configuration_to_write(config, os.environ)
    change(
        path,
        lambda text: put_table(text, section, name, made, may_replace=may_replace),
        What(section, name, "there"),
        done=f"{section}.{name} is there",
        is_dry=is_dry,
        as_json=as_json,
    )
    return OK


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
            fail(USAGE, f"what stands behind the URL is too much: {rest[0]!r}", "A command goes behind `--`.")
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
