"""`mcpbridge read`: print a resource."""

import click

from mcpbridge.cli import engine
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import print_json, show_contents
from mcpbridge.config.load import Loaded
from mcpbridge.redaction import Redactor

__all__ = ["command"]


@click.command("read")
@click.argument("uri")
@config_option
@as_json_option
def command(*, uri: str, config: str | None, as_json: bool) -> int:
    """Print the resource URI, as `list --resources` shows it. Binary contents go to a file or pipe as they are."""

    async def reading(loaded: Loaded, redact: Redactor) -> int:
        async with engine.settle(loaded, redact) as bridge:
            result = await engine.ask(bridge, "resources/read", {"uri": uri})
            if as_json:
                print_json(result)
            else:
                show_contents(result.get("contents", []))
        return 0

    return engine.run(reading, config, as_json=as_json)
