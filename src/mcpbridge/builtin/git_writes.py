"""The sub-commands of git that change something, each after a person agreed; data, and nothing else.

Not here: `rebase --continue` and `--exec`, whose list of steps may hold commands and lies in the repository.
"""

from functools import partial

from mcpbridge.builtin.cli_rows import Command, command

__all__ = ["NETWORK", "WRITES"]

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
