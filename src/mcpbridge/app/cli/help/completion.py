"""`mcpbridge completion`: print a script that brings completion into a shell.

Each script asks `mcpbridge __complete`, so it needs no renewal.
"""

from collections.abc import Mapping

import click

from mcpbridge.app.exit_codes import OK

_BASH = r"""# Completion of mcpbridge for bash: eval "$(mcpbridge completion bash)"
_mcpbridge() {
    local program=${1/#\~\//$HOME/} kind= typed= cut= value about IFS=$' \t\n'
    COMPREPLY=()
    while IFS=$'\t' read -r value about; do
        if [ -z "$kind" ]; then
            kind=$value typed=$about
            # bash completes from the last of its separators on
            case $COMP_WORDBREAKS in *[=:]*) cut=${typed%"${typed##*[=:]}"} ;; esac
        else
            COMPREPLY+=("${value#"$cut"}")
        fi
    done < <("$program" __complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    case $kind in
        files | folders)
            typed=${typed#"$cut"}
            [ "$kind" = files ] && kind=-f || kind=-d
            while IFS= read -r value; do COMPREPLY+=("$value"); done < <(compgen "$kind" -- "$typed")
            type compopt >/dev/null 2>&1 && compopt -o filenames
            ;;
        *)
            case "${#COMPREPLY[@]} ${COMPREPLY[0]}" in
                "1 "*[=/]) type compopt >/dev/null 2>&1 && compopt -o nospace ;;
            esac
            ;;
    esac
}
complete -F _mcpbridge mcpbridge
"""

_ZSH = r"""#compdef mcpbridge
# Completion of mcpbridge for zsh: eval "$(mcpbridge completion zsh)", after compinit
_mcpbridge() {
    local kind value about
    local -a lines words_ open_
    lines=("${(@f)$("${(Q)words[1]/#\~\//$HOME/}" __complete zsh "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    kind=${lines[1]%%$'\t'*}
    shift lines
    for value in $lines; do
        about=${value#*$'\t'}
        value=${value%%$'\t'*}
        if [[ $value == *[=/] ]]; then
            open_+=("${value//:/\\:}:$about")
        else
            words_+=("${value//:/\\:}:$about")
        fi
    done
    case $kind in
        files) _files ;;
        folders) _files -/ ;;
        *)
            (( $#open_ )) && _describe value open_ -S ''
            (( $#words_ )) && _describe value words_
            ;;
    esac
}
if [[ ${funcstack[1]} == _mcpbridge ]]; then
    _mcpbridge "$@"
else
    compdef _mcpbridge mcpbridge
fi
"""

_FISH = r"""# Completion of mcpbridge for fish: mcpbridge completion fish | source
function __mcpbridge_complete
    set -l program (string replace -r '^~/' "$HOME/" -- (commandline -opc)[1])
    set -l typed (string replace -r '^[\'"]' '' -- (commandline -ct))
    set -l lines ($program __complete fish (commandline -opc)[2..-1] "$typed" 2>/dev/null)
    switch (string split -f1 \t -- $lines[1])
        case files
            __fish_complete_path "$typed"
        case folders
            __fish_complete_directories "$typed"
        case '*'
            printf '%s\n' $lines[2..-1]
    end
end
complete -c mcpbridge -f -a '(__mcpbridge_complete)'
"""

SCRIPTS: Mapping[str, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""By shell."""


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
