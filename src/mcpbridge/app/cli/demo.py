"""`mcpbridge demo`: what a bridge does, in eight scenes on servers that the package brings."""

import sys
from collections.abc import Callable
from typing import Any

import click

from mcpbridge.app.cli.bridge_session import run
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option
from mcpbridge.app.cli.output import print_json
from mcpbridge.app.demo.bill import PRICE
from mcpbridge.app.demo.play import MakeCast, Options, command_here, play
from mcpbridge.app.demo.terminal import has_person
from mcpbridge.app.exit_codes import USAGE
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.config.schema import Settings

_pause = click.option("--pause", "is_paused", is_flag=True, help="Wait for a key between scenes.")
_price = click.option(
    "--price",
    type=click.FloatRange(0, min_open=True),
    default=PRICE,
    metavar="DOLLARS",
    help=f"What a million tokens cost (default: {PRICE:g}).",
)


def demo_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a demo, for whoever plays one."""
    return _pause(_price(as_json_option(command)))


@click.command("demo")
@demo_options
def demo_command(*, is_paused: bool, price: float, as_json: bool) -> int:
    """Show what the bridge does, in eight scenes on five small servers that it brings.

    It needs no configuration, no network and no checkout. It changes none of your files and leaves nothing behind. Exit
    code 5: a scene does not hold.

    \u0008
    Examples:
      mcpbridge demo
      mcpbridge demo --pause
    """
    from mcpbridge.app.demo.own_cast import own_cast

    return play_cast(own_cast, is_paused=is_paused, price=price, as_json=as_json)


def play_cast(make_cast: MakeCast, *, is_paused: bool, price: float, as_json: bool) -> int:
    """Play a demo as a command, and return its exit code."""
    if sys.platform == "win32":
        fail(USAGE, "the demo does not run on Windows", "It kills a server by a signal, which Windows does not have.")
    if is_paused and (as_json or not has_person()):
        fail(USAGE, "--pause waits for keys, and there is no terminal", "Run it in a terminal, or without --pause.")
    options = Options(is_paused=is_paused, price=price, is_quiet=as_json, command=command_here())

    async def playing(_loaded: Loaded, _redact: Redactor) -> int:
        played = await play(make_cast, options)
        if as_json:
            print_json("demo/1", played.as_json())
        return played.code

    return run(playing, None, as_json=as_json, load=lambda _config: Loaded(Settings()))
