"""The sub-commands and options of git that are never run, whoever agrees, and why. Data only."""

from mcpbridge.tools.builtin.programs.allow_list import for_each

_RUNS, _OUT, _IN = (
    "it runs another program",
    "it writes to a path of its caller's choice",
    "it reads files that are outside",
)
_ELSE = "repositories are chosen by `directory` alone"
_ENTERS = "submodules bring configurations of their own"

_PLAIN = {
    **for_each(
        """am bisect citool credential credential-cache credential-store cvsimport cvsserver daemon difftool
            fast-export fast-import filter-branch fsmonitor--daemon gc gui gitk hook http-backend
            http-fetch http-push imap-send instaweb interpret-trailers maintenance mergetool p4
            quiltimport receive-pack remote-ext remote-fd remote-http remote-https send-email send-pack
            fetch-pack sh-i18n shell svn upload-archive upload-pack verify-commit verify-tag web--browse
            request-pull var help archive""",
        _RUNS,
    ),
    **for_each("apply hash-object mktree mktag update-index update-ref read-tree", _IN),
    **for_each("bundle checkout-index format-patch diagnose bugreport unpack-file pack-objects", _OUT),
    "submodule": _ENTERS,
}

NEVER: dict[tuple[str, ...], str] = {
    **{(name,): why for name, why in _PLAIN.items()},
    ("config", "set"): "it could name programs to run",
    ("config", "edit"): _RUNS,
    ("worktree", "add"): _ELSE,
    ("stash", "store"): _IN,
    ("stash", "create"): _IN,
    **{("reflog", one): "it takes away what leads back" for one in ("delete", "drop", "expire", "write")},
}
"""Sub-commands."""

NEVER_OPTIONS = {
    **for_each(
        """-c --config-env --config --exec-path --upload-pack --receive-pack --exec -x --extcmd -O
            --open-files-in-pager --ext-diff --textconv --filters --tool --tool-help --gpg-sign
            --show-signature --verify --verify-signatures --signed --strategy --interactive --edit
            --patch --paginate --help --html-path --man-path --info-path --local-user --sign --trailer
            --interpolate --remote --server-option --attr-source --list-cmds""",
        "it can run another program",
    ),
    **for_each("--output --output-directory -o --separate-git-dir --template --output-indicator-new", _OUT),
    **for_each(
        """--no-index --contents -F --file --pathspec-from-file --ignore-revs-file -S --exclude-from -X
            --exclude-per-directory --orderfile --stdin --reference --global --system --blob
            --pathspec-file-nul -f --message-file --batch --batch-check --batch-command -t""",
        _IN,
    ),
    **for_each("-C --git-dir --work-tree --namespace --super-prefix --resolve-git-dir", _ELSE),
    **for_each("--recurse-submodules --submodule --ignore-submodules --dirty --broken --recursive", _ENTERS),
}
"""Options that no table has. (A few are harmless in some sub-command, and are in its table then.)"""
