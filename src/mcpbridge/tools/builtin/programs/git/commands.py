"""The sub-commands and options of git that may be called. What is in no table is refused. Data only.

Left out on purpose, beside what `refused.py` names: `--dirty` of describe, `--submodule=diff` and all that enters
submodules, since git starts itself anew there without the neutralised configuration; `rebase --continue` and `--exec`,
whose list of steps may hold commands and lies in the repository.
"""

from functools import partial

from mcpbridge.tools.builtin.programs.allow_list import Command, Program, command
from mcpbridge.tools.builtin.programs.git.refused import NEVER, NEVER_OPTIONS

_change = partial(command, level="write")
_reach = partial(command, level="write", network=True)

_MERGE = """--ff --no-ff --ff-only --squash --no-squash --stat --no-stat -n -q --quiet -v --verbose --signoff
        --no-signoff --allow-unrelated-histories"""
_ENDS = "--abort --quit --continue --skip"

WRITES: tuple[Command, ...] = (
    _change(
        "add",
        """-A --all -u --update -n --dry-run -v --verbose -f --force -N --intent-to-add --refresh
            --ignore-errors --ignore-removal --no-all --chmod:text --renormalize --sparse""",
        "path* --",
    ),
    _change(
        "commit",
        """-m:text --message:text -a --all --amend --no-edit --allow-empty --allow-empty-message
            --author:text --date:text -s --signoff --no-signoff -q --quiet --dry-run --short --porcelain
            --fixup:revision --squash:revision -C:revision --reuse-message:revision --reset-author -i --include
            -o --only --cleanup:text -u?text --no-status""",
        "path* --",
        runs="commit --no-gpg-sign",
        quiet=(1,),
        wants="-m --message --no-edit --dry-run --short --porcelain --fixup -C --reuse-message",
    ),
    _change(
        "checkout",
        """-b:branch -B:branch -q --quiet -f --force --ours --theirs -d --detach -t --track
            --no-track --guess --no-guess -m --merge --orphan:branch --overlay --no-overlay""",
        "revision* --",
        runs="checkout --no-recurse-submodules",
    ),
    _change(
        "switch",
        """-c:branch --create:branch -C:branch --force-create:branch -d --detach -q --quiet -f --force
            --discard-changes -t --track --no-track --guess --no-guess -m --merge --orphan:branch""",
        "revision revision",
        runs="switch --no-recurse-submodules",
    ),
    _change(
        "restore",
        """-s:revision --source:revision -S --staged -W --worktree -q --quiet --ours --theirs -m
            --merge --overlay --no-overlay --ignore-unmerged""",
        "path* --",
        runs="restore --no-recurse-submodules",
    ),
    _change(
        "reset",
        "--soft --mixed --hard --merge --keep -q --quiet -N --intent-to-add",
        "revision* --",
        runs="reset --no-recurse-submodules",
    ),
    _change("rm", "-f --force -n --dry-run -r --cached --ignore-unmatch -q --quiet --sparse", "path* --"),
    _change("mv", "-f --force -k -n --dry-run -v --verbose --sparse", "path*", needs=2),
    _change("clean", "-d -f --force -n --dry-run -q --quiet -e:text --exclude:text -x -X", "path* --"),
    _change(
        "merge",
        f"{_MERGE} -m:text --abort --quit --continue --no-commit --commit -X:branch --log?number --no-log",
        "revision*",
        ends=_ENDS,
        runs="merge --no-edit --no-verify-signatures --no-gpg-sign",
    ),
    _change(
        "rebase",
        """--onto:revision --keep-base --abort --quit -q --quiet -v --verbose --stat -n --no-stat -f
            --force-rebase --no-ff --root --autosquash --no-autosquash --autostash --no-autostash --fork-point
            --no-fork-point --update-refs""",
        "revision*",
        ends=_ENDS,
        runs="rebase --no-gpg-sign",
    ),
    _change(
        "cherry-pick",
        """-n --no-commit -x -s --signoff --ff --allow-empty --keep-redundant-commits -m:number
            --mainline:number --abort --quit --continue --skip""",
        "revision*",
        ends=_ENDS,
        runs="cherry-pick --no-gpg-sign",
    ),
    _change(
        "revert",
        "-n --no-commit -s --signoff -m:number --mainline:number --abort --quit --continue --skip --no-edit",
        "revision*",
        ends=_ENDS,
        runs="revert --no-edit --no-gpg-sign",
    ),
    _change(
        "stash",
        "-q --quiet -u --include-untracked -a --all -k --keep-index --no-keep-index -S --staged",
        runs="stash push",
    ),
    _change(
        "stash push",
        """-m:text --message:text -q --quiet -u --include-untracked -a --all -k --keep-index
            --no-keep-index -S --staged""",
        "path* --",
    ),
    _change("stash pop", "--index -q --quiet", "revision"),
    _change("stash apply", "--index -q --quiet", "revision"),
    _change("stash drop", "-q --quiet", "revision"),
    _change("stash branch", "", "branch revision", needs=1),
    _change("remote add", "-t:branch -m:branch --tags --no-tags", "branch url", needs=2),
    _change("remote remove", "", "branch", needs=1),
    _change("remote rename", "", "branch branch", needs=2),
    _change("remote set-url", "--push", "branch url", needs=2),
    _change(
        "init",
        "-q --quiet --bare -b:branch --initial-branch:branch --object-format:text",
        "folder",
        runs="init --template=",
    ),
)

NETWORK: tuple[Command, ...] = (
    _reach(
        "fetch",
        """--all -a --append --depth:number --deepen:number --shallow-since:text --unshallow -p --prune
            -P --prune-tags -n --no-tags -t --tags -f --force -k --keep -q --quiet -v --verbose --dry-run
            --atomic --set-upstream""",
        "remote refspec*",
        runs="fetch --no-recurse-submodules --no-auto-maintenance",
    ),
    _reach(
        "pull",
        f"""{_MERGE} -r --rebase?text --no-rebase --depth:number -p --prune -t --tags --autostash
            --no-autostash --all -f --force""",
        "remote refspec*",
        runs="pull --no-recurse-submodules --no-edit --no-gpg-sign",
    ),
    _reach(
        "push",
        """-u --set-upstream --all --branches --tags --follow-tags --no-follow-tags -n --dry-run
            --porcelain -f --force --force-with-lease?text --force-if-includes -d --delete --atomic --prune -q
            --quiet -v --verbose""",
        "remote refspec*",
        runs="push --no-recurse-submodules --no-signed",
    ),
    _reach(
        "clone",
        """--depth:number -b:branch --branch:branch --single-branch --no-single-branch -n --no-checkout
            --bare --mirror --no-tags -q --quiet -v --verbose -o:branch --origin:branch --shallow-since:text
            --sparse --filter:text""",
        "url folder",
        runs="clone --no-recurse-submodules --template= --no-local",
        needs=1,
    ),
    _reach(
        "ls-remote",
        "-h --heads --branches -t --tags --refs -q --quiet --exit-code --get-url --sort:text --symref",
        "remote text*",
        quiet=(2,),
    ),
    _reach("remote show", "", "branch"),
    _reach("remote update", "-p --prune", "branch*"),
    _reach("remote prune", "-n --dry-run", "branch", needs=1),
)
"""With the network, over https and ssh."""


_SAFE = "--no-ext-diff --no-textconv --ignore-submodules=all"
"""Given to all that shows differences: no program of the repository's configuration, no process in a submodule."""

_COMMITS = """-#:number -n:number --max-count:number --skip:number --since:text --after:text --until:text --before:text
        --author:text --committer:text --grep:text --all-match --invert-grep -i --regexp-ignore-case -E
        --extended-regexp -F --fixed-strings -P --perl-regexp --merges --no-merges --min-parents:number
        --max-parents:number --first-parent --all --branches?text --tags?text --remotes?text --glob:text
        --exclude:text --no-walk --cherry --cherry-pick --cherry-mark --left-right --left-only --right-only
        --boundary --simplify-by-decoration --full-history --dense --sparse --ancestry-path --topo-order
        --date-order --author-date-order --reverse -g --walk-reflogs --date:text --relative-date --parents
        --children --abbrev-commit --no-abbrev-commit --oneline --pretty?text --format:text --encoding:text
        --graph --no-graph --decorate?text --no-decorate --decorate-refs:text --decorate-refs-exclude:text
        --source --follow --notes?text --no-notes --no-expand-tabs --expand-tabs?number --mailmap --no-mailmap
        --use-mailmap --show-pulls --simplify-merges --remove-empty --log-size --count"""
_DIFFERENCES = """-p -u --patch -s --no-patch -U:number --unified:number --raw --patch-with-raw --stat?text --numstat
        --shortstat --compact-summary --dirstat?text --summary --name-only --name-status --patch-with-stat -z
        --minimal --patience --histogram --diff-algorithm:text --anchored:text --color?text --no-color
        --color-moved?text --word-diff?text --word-diff-regex:text --color-words?text --no-renames
        --rename-empty --check --full-index --binary --abbrev?number --no-abbrev -B?text --break-rewrites?text
        -M?text --find-renames?text --find-copies?text --find-copies-harder -D --irreversible-delete
        --diff-filter:text -S:text -G:text --find-object:revision --pickaxe-all --pickaxe-regex -R
        --relative?path --no-relative -a --text --ignore-cr-at-eol --ignore-space-at-eol -b
        --ignore-space-change -w --ignore-all-space --ignore-blank-lines -I:text --ignore-matching-lines:text
        --inter-hunk-context:number -W --function-context --exit-code --quiet --no-ext-diff --no-textconv
        --no-prefix --src-prefix:text --dst-prefix:text --ita-invisible-in-index --cc -m --combined-all-paths
        --root --no-color-moved --line-prefix:text"""
_LOG = f"{_COMMITS} {_DIFFERENCES} -L:range"
_REFS = """--sort:text --format:text --contains?revision --no-contains?revision --merged?revision
        --no-merged?revision --points-at:revision -i --ignore-case --color?text --no-color --column?text
        --no-column"""
_FILES = """-z -t -v -c --cached -d --deleted -m --modified -o --others -i --ignored -s --stage -u --unmerged -k
        --killed --directory --no-empty-directory --eol --deduplicate -x:text --exclude:text --exclude-standard
        --error-unmatch --full-name --abbrev?number --sparse --format:text"""
_GREP = """-i --ignore-case -I -w --word-regexp -v --invert-match -h -H --full-name -E --extended-regexp -G
        --basic-regexp -P --perl-regexp -F --fixed-strings -n --line-number --column -l --files-with-matches
        --name-only -L --files-without-match -z --null -o --only-matching -c --count --color?text --no-color
        --break --heading -p --show-function -A:number --after-context:number -B:number --before-context:number
        -C:number --context:number -#:number -W --function-context -m:number --max-count:number -e:text --and
        --or --not --all-match -q --quiet --cached --untracked --no-exclude-standard --exclude-standard
        --max-depth:number -r --recursive --no-recursive -a --text"""
_READS: tuple[Command, ...] = (
    command(
        "status",
        """-s --short -b --branch --show-stash --porcelain?text --long -u?text --untracked-files?text
            --ignored?text -z --column?text --no-column --ahead-behind --no-ahead-behind --renames --no-renames
            --find-renames?text""",
        "path* --",
        runs="status --ignore-submodules=all",
    ),
    command("log", _LOG, "revision* --", runs=f"log {_SAFE}"),
    command("show", _LOG, "revision* --", runs=f"show {_SAFE}"),
    command(
        "diff",
        f"{_DIFFERENCES} --cached --staged --merge-base --base --ours --theirs -#:number",
        "revision* --",
        runs=f"diff {_SAFE}",
        quiet=(1,),
    ),
    command(
        "diff-tree",
        f"{_DIFFERENCES} -r -t --no-commit-id --pretty?text --format:text -v",
        "revision* --",
        needs=1,
        runs=f"diff-tree {_SAFE}",
        quiet=(1,),
    ),
    command("whatchanged", _LOG, "revision* --", runs=f"log {_SAFE} --raw --no-merges"),
    command(
        "shortlog",
        f"{_COMMITS} -n --numbered -s --summary -e --email -c --committer --group:text -w?text",
        "revision* --",
    ),
    command("reflog", _LOG, "revision* --", runs=f"reflog show {_SAFE}"),
    command("reflog show", _LOG, "revision* --", runs=f"reflog show {_SAFE}"),
    command("stash list", _LOG, runs=f"stash list {_SAFE}"),
    command(
        "stash show", f"{_DIFFERENCES} -u --include-untracked --only-untracked", "revision", runs=f"stash show {_SAFE}"
    ),
    command(
        "blame",
        """-L:range -l -t -s -e --show-email -f --show-name -n --show-number -p --porcelain --line-porcelain
            --incremental --root --show-stats --since:text --reverse --first-parent --encoding:text --date:text
            --abbrev:number -w -M?number --score-debug -b --color-lines --color-by-age --minimal
            --ignore-rev:revision""",
        "revision path --",
        runs="blame --no-textconv",
    ),
    command("ls-files", _FILES, "path* --"),
    command(
        "ls-tree",
        """-d -r -t -l --long -z --name-only --name-status --object-only --full-name --full-tree
        --abbrev?number --format:text""",
        "revision path*",
        needs=1,
    ),
    command("grep", _GREP, "text revision* --", runs="grep --no-textconv --no-recurse-submodules", quiet=(1,)),
    command(
        "rev-parse",
        """--verify -q --quiet --short?number --abbrev-ref?text --symbolic --symbolic-full-name --all
            --branches?text --tags?text --remotes?text --glob:text --exclude:text --show-toplevel --show-prefix
            --show-cdup --git-dir --absolute-git-dir --git-common-dir --is-inside-git-dir --is-inside-work-tree
            --is-bare-repository --is-shallow-repository --show-object-format?text --revs-only --no-revs --flags
            --no-flags --sq --not --disambiguate:text --show-superproject-working-tree --path-format:text""",
        "revision* --",
        quiet=(1,),
    ),
    command(
        "rev-list",
        f"""{_COMMITS} --objects --objects-edge --header --timestamp --disk-usage?text
        --no-commit-header --in-commit-order --use-bitmap-index --unpacked --missing:text --quiet""",
        "revision* --",
    ),
    command(
        "describe",
        """--all --tags --contains --abbrev?number --candidates:number --exact-match --debug
        --long --match:text --exclude:text --always --first-parent""",
        "revision*",
    ),
    command("name-rev", "--tags --refs:text --exclude:text --all --name-only --no-undefined --always", "revision*"),
    command("cat-file", "-p -t -s -e", "revision revision", needs=1, quiet=(1,)),
    command(
        "merge-base", "-a --all --octopus --independent --is-ancestor --fork-point", "revision*", needs=1, quiet=(1,)
    ),
    command("for-each-ref", f"{_REFS} --count:number --omit-empty --exclude:text", "text*"),
    command(
        "show-ref",
        """-d --dereference -s --hash?number --verify --abbrev?number --tags --heads --branches
        --head -q --quiet""",
        "text*",
        quiet=(1,),
    ),
    command("symbolic-ref", "--short -q --quiet", "branch", needs=1, quiet=(1,)),
    command("count-objects", "-v --verbose -H --human-readable"),
    command("check-ignore", "-v --verbose -n --non-matching -q --quiet", "path* --", quiet=(1,)),
    command("cherry", "-v --verbose --abbrev?number", "revision*"),
    command("config get", "", "setting", needs=1, runs="config --get", quiet=(1,)),
    command("config", "--get --get-all", "setting", needs=1, wants="--get --get-all", quiet=(1,)),
    command("remote", "-v --verbose"),
    command("remote get-url", "--push --all", "branch", needs=1),
    command("worktree list", "--porcelain -v --verbose -z"),
    command("notes list", "", "revision"),
    command("notes show", "", "revision"),
    command("version", "--build-options"),
)

_LISTING = "-l --list --contains --no-contains --merged --no-merged --points-at"

_BOTH: tuple[Command, ...] = (
    command(
        "branch",
        f"{_REFS} -a --all -r --remotes -v --verbose -q --quiet --show-current -l --list --abbrev?number --no-abbrev",
        "revision*",
        writes="""-d --delete -D -m --move -M -c --copy -C -f --force -t --track?text --no-track -u:branch
            --set-upstream-to:branch --unset-upstream --create-reflog""",
        arguments="write",
        lists=_LISTING,
    ),
    command(
        "tag",
        f"{_REFS} -l --list -n?number",
        "revision*",
        writes="-a --annotate -m:text --message:text -d --delete -f --force --create-reflog --cleanup:text",
        arguments="write",
        lists=f"{_LISTING} -n",
    ),
)

GIT = Program(
    "git",
    {one.words: one for one in (*_READS, *_BOTH, *WRITES, *NETWORK)},
    NEVER,
    NEVER_OPTIONS,
    "options of git itself choose other repositories, configurations and programs; start with the sub-command",
)
