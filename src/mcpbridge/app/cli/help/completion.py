"""`mcpbridge completion`: print a script that brings completion into a shell."""

import click

from mcpbridge.app.cli.help.shell_scripts import SCRIPTS
from mcpbridge.app.exit_codes import OK


@click.command("completion")
@click.argument("shell", type=click.Choice(list(SCRIPTS)))
def completion_command(*, shell: str) -> int:
    """Print a script that completes commands, options, and names of servers and tools when you press Tab.

    Put its line into the file that your shell reads at its start: ~/.bashrc, ~/.zshrc (after compinit), or
    ~/.config/fish/config.fish. The script asks mcpbridge each time, so it stays right after an upgrade.

    \u0008
    Examples:
      eval "$(mcpbridge completion bash)"
      eval "$(mcpbridge completion zsh)"
      mcpbridge completion fish | source
    """
    print(SCRIPTS[shell], end="")
    return OK
