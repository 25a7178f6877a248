"""`gh-cli`: GitHub's own program, with the user's sign-in; the table of what may be called, and what is refused.

Reading needs nobody's agreement, everything else a person's. gh works in an empty directory that is no repository, so
it starts no git of a repository and reads no file of one.
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.core.model import Call
from mcpbridge.tools.builtin.programs.allow_list import Command, Program, Verdict, command, judge
from mcpbridge.tools.builtin.programs.cli_tool import CHANGES_ELSEWHERE, ServiceCli, one_command, text_argument
from mcpbridge.tools.builtin.programs.command_line import words_of
from mcpbridge.tools.builtin.programs.settings import GhCliSettings

_REPO = "-R:repository --repo:repository"
_JSON = "--json:text -q:jq --jq:jq -t:text --template:text"
_LIST = f"{_REPO} {_JSON} -L:number --limit:number"
_SEARCH = f"""{_JSON} -L:number --limit:number --order:text --sort:text --owner:text --created:text --updated:text
        --archived?text --language:text --match:text --visibility:text"""
_TALK = f"""{_SEARCH} --app:text --assignee:text --author:text --closed:text --commenter:text --comments:text
        --interactions:text --involves:text --label:text --locked --mentions:text --milestone:text --no-assignee
        --no-label --no-milestone --no-project --project:text --reactions:text --repo:repository -R:repository
        --state:text --team-mentions:text"""
_PEOPLE = "-a:text --assignee:text -l:text --label:text -m:text --milestone:text -p:text --project:text"
_EDIT = """--add-assignee:text --add-label:text --add-project:text --remove-assignee:text --remove-label:text
        --remove-project:text -b:text --body:text -m:text --milestone:text --remove-milestone -t:text
        --title:text"""

_read = partial(command, network=True)
_change = partial(command, level="write", network=True)

_READS: tuple[Command, ...] = (
    _read(
        "pr list",
        f"""{_LIST} --app:text -a:text --assignee:text -A:text --author:text -B:text --base:text -d
            --draft -H:text --head:text -l:text --label:text -S:text --search:text -s:text --state:text""",
    ),
    _read("pr view", f"{_REPO} {_JSON} -c --comments", "item"),
    _read("pr diff", f"{_REPO} --color:text --name-only --patch -e:text --exclude:text", "item"),
    _read("pr checks", f"{_REPO} {_JSON} --required", "item", quiet=(8,)),
    _read("pr status", f"{_REPO} {_JSON} -c --conflict-status"),
    _read(
        "issue list",
        f"""{_LIST} --app:text -a:text --assignee:text -A:text --author:text -l:text --label:text
            --mention:text -m:text --milestone:text -S:text --search:text -s:text --state:text --type:text""",
    ),
    _read("issue view", f"{_REPO} {_JSON} -c --comments", "item", needs=1),
    _read("issue status", f"{_REPO} {_JSON}"),
    _read(
        "repo list",
        f"""{_JSON} -L:number --limit:number --archived --fork -l:text --language:text --no-archived
            --source --topic:text --visibility:text""",
        "item",
    ),
    _read("repo view", f"{_JSON} -b:text --branch:text", "repository"),
    _read("release list", f"{_LIST} --exclude-drafts --exclude-pre-releases -O:text --order:text"),
    _read("release view", f"{_REPO} {_JSON}", "item"),
    _read(
        "run list",
        f"""{_LIST} -a --all -b:text --branch:text -c:text --commit:text --created:text -e:text
            --event:text -s:text --status:text -u:text --user:text -w:item --workflow:item""",
    ),
    _read(
        "run view",
        f"""{_REPO} {_JSON} -a:number --attempt:number --exit-status -j:text --job:text --log
            --log-failed -v --verbose""",
        "item",
        quiet=(1,),
    ),
    _read("workflow list", f"{_LIST} -a --all"),
    _read("workflow view", f"{_REPO} -r:text --ref:text -y --yaml", "item", needs=1),
    _read("label list", f"{_LIST} --order:text -S:text --search:text --sort:text"),
    _read("cache list", f"{_LIST} -k:text --key:text -O:text --order:text -r:text --ref:text -S:text --sort:text"),
    _read("ruleset list", f"{_REPO} -L:number --limit:number -o:text --org:text -p --parents"),
    _read("ruleset view", f"{_REPO} -o:text --org:text -p --parents", "item", needs=1),
    _read("gist list", "-L:number --limit:number --public --secret --filter:text --include-content"),
    _read("gist view", "-f:text --filename:text --files -r --raw", "item", needs=1),
    _read("org list", "-L:number --limit:number"),
    _read(
        "project list",
        """-L:number --limit:number --owner:text --closed --format:text -q:jq --jq:jq -t:text
            --template:text""",
    ),
    _read("project view", "--owner:text --format:text -q:jq --jq:jq -t:text --template:text", "number"),
    _read("project item-list", "--owner:text -L:number --limit:number --format:text -q:jq --jq:jq", "number"),
    _read("variable list", f"{_REPO} {_JSON} -e:text --env:text -o:text --org:text"),
    _read("secret list", f"{_REPO} {_JSON} -a:text --app:text -e:text --env:text -o:text --org:text -u --user"),
    _read(
        "search repos",
        f"""{_SEARCH} --followers:text --forks:text --good-first-issues:text
            --help-wanted-issues:text --include-forks:text --license:text --number-topics:text --size:text
            --stars:text --topic:text""",
        "text*",
    ),
    _read("search issues", f"{_TALK} --include-prs", "text*"),
    _read(
        "search prs",
        f"""{_TALK} -B:text --base:text --checks:text --draft -H:text --head:text --merged
            --merged-at:text --review:text --review-requested:text --reviewed-by:text""",
        "text*",
    ),
    _read(
        "search code",
        f"""{_JSON} -L:number --limit:number --extension:text --filename:text --language:text
            --match:text --owner:text -R:repository --repo:repository --size:text""",
        "text*",
    ),
    _read(
        "search commits",
        f"""{_SEARCH} --author:text --author-date:text --author-email:text --author-name:text
            --committer:text --committer-date:text --committer-email:text --committer-name:text --hash:text
            --merge --parent:text -R:repository --repo:repository --tree:text""",
        "text*",
    ),
    _read("status", "-e:text --exclude:text -o:text --org:text"),
    _read("auth status", "-a --active"),
    _read(
        "api",
        """-X:get --method:get -q:jq --jq:jq -t:text --template:text --paginate --slurp -i --include
            --silent --cache:text -p:text --preview:text -H:header --header:header -f:field --raw-field:field""",
        "endpoint",
        needs=1,
        runs="api --method=GET",
    ),
)

_WRITES: tuple[Command, ...] = (
    _change("issue create", f"{_REPO} {_PEOPLE} -t:text --title:text -b:text --body:text", wants="-t --title"),
    _change("issue comment", f"{_REPO} -b:text --body:text --edit-last", "item", needs=1, wants="-b --body"),
    _change("issue close", f"{_REPO} -c:text --comment:text -r:text --reason:text", "item", needs=1),
    _change("issue reopen", f"{_REPO} -c:text --comment:text", "item", needs=1),
    _change("issue edit", f"{_REPO} {_EDIT}", "item*", needs=1),
    _change("issue lock", f"{_REPO} -r:text --reason:text", "item", needs=1),
    _change("issue unlock", _REPO, "item", needs=1),
    _change("issue pin", _REPO, "item", needs=1),
    _change("issue unpin", _REPO, "item", needs=1),
    _change(
        "pr create",
        f"""{_REPO} {_PEOPLE} -t:text --title:text -b:text --body:text -B:text --base:text -H:text
            --head:text -d --draft -r:text --reviewer:text --no-maintainer-edit""",
        wants="-t --title",
    ),
    _change("pr comment", f"{_REPO} -b:text --body:text --edit-last", "item", needs=1, wants="-b --body"),
    _change(
        "pr review", f"{_REPO} -a --approve -b:text --body:text -c --comment -r --request-changes", "item", needs=1
    ),
    _change("pr close", f"{_REPO} -c:text --comment:text", "item", needs=1),
    _change("pr reopen", f"{_REPO} -c:text --comment:text", "item", needs=1),
    _change("pr ready", f"{_REPO} --undo", "item", needs=1),
    _change(
        "pr edit", f"{_REPO} {_EDIT} --add-reviewer:text --remove-reviewer:text -B:text --base:text", "item", needs=1
    ),
    _change(
        "pr merge",
        f"""{_REPO} --admin -A:text --author-email:text --auto -b:text --body:text --disable-auto
            --match-head-commit:text -m --merge -r --rebase -s --squash -t:text --subject:text""",
        "item",
        needs=1,
    ),
    _change("label create", f"{_REPO} -c:text --color:text -d:text --description:text -f --force", "text", needs=1),
    _change(
        "label edit", f"{_REPO} -c:text --color:text -d:text --description:text -n:text --name:text", "text", needs=1
    ),
    _change("label delete", f"{_REPO} --yes", "text", needs=1, wants="--yes"),
    _change(
        "release create",
        f"""{_REPO} -d --draft --generate-notes --latest -n:text --notes:text --notes-start-tag:text -p
            --prerelease --target:text -t:text --title:text --verify-tag""",
        "item",
        needs=1,
    ),
    _change(
        "release edit",
        f"""{_REPO} --draft --latest -n:text --notes:text --prerelease --tag:text --target:text
            -t:text --title:text""",
        "item",
        needs=1,
    ),
    _change("release delete", f"{_REPO} -y --yes --cleanup-tag", "item", needs=1, wants="-y --yes"),
    _change("run rerun", f"{_REPO} -d --debug --failed -j:text --job:text", "item", needs=1),
    _change("run cancel", _REPO, "item", needs=1),
    _change("workflow run", f"{_REPO} -r:text --ref:text -f:field --raw-field:field", "item", needs=1),
    _change("workflow enable", _REPO, "item", needs=1),
    _change("workflow disable", _REPO, "item", needs=1),
)

_SIGNED_IN = "who is signed in, and the token, are not for the caller"
_HERE = "it reads or writes files of this machine"
_RUNS = "it runs another program"

NEVER: dict[tuple[str, ...], str] = {
    **{("auth", one): _SIGNED_IN for one in ("token", "login", "logout", "refresh", "setup-git", "switch")},
    ("alias",): "an alias can run anything",
    ("extension",): _RUNS,
    ("extensions",): _RUNS,
    ("ext",): _RUNS,
    ("config",): "its configuration names programs to run",
    ("browse",): "it opens a browser",
    ("codespace",): _RUNS,
    ("cs",): _RUNS,
    ("copilot",): _RUNS,
    ("completion",): "it is for shells",
    ("ssh-key",): _SIGNED_IN,
    ("gpg-key",): _SIGNED_IN,
    ("attestation",): _HERE,
    ("pr", "checkout"): _RUNS,
    ("pr", "co"): _RUNS,
    ("co",): _RUNS,
    ("issue", "develop"): _RUNS,
    ("issue", "delete"): "it cannot be undone",
    ("issue", "transfer"): "it cannot be undone",
    ("repo", "clone"): "it runs git; use git-cli",
    ("repo", "fork"): "it runs git; use git-cli",
    ("repo", "create"): _RUNS,
    ("repo", "sync"): _RUNS,
    ("repo", "delete"): "it cannot be undone",
    ("repo", "set-default"): _HERE,
    ("repo", "deploy-key"): _SIGNED_IN,
    **{("secret", one): _SIGNED_IN for one in ("set", "delete", "remove")},
    **{("variable", one): "it changes what workflows run" for one in ("set", "delete")},
    **{("release", one): _HERE for one in ("download", "upload")},
    ("run", "download"): _HERE,
    ("run", "watch"): "it does not end",
    **{("gist", one): _HERE for one in ("create", "edit", "clone", "delete", "rename")},
}
"""Sub-commands, and why nobody can allow them."""

NEVER_OPTIONS = {
    **dict.fromkeys(("-w", "--web", "-e", "--editor", "--recover"), _RUNS),
    **dict.fromkeys(("--show-token", "--hostname", "-h", "--with-token", "--verbose"), _SIGNED_IN),
    **dict.fromkeys(("-F", "--field", "--body-file", "--notes-file", "--input", "--attach", "-D", "--dir"), _HERE),
    **dict.fromkeys(("--watch", "--follow"), "it does not end"),
    **dict.fromkeys(("--delete-branch", "--fill", "-f"), "it runs git"),
    **dict.fromkeys(("--help", "--version"), "it is not needed: this answers with what there is"),
}
"""Options that no table has, and why."""

GH = Program("gh", {one.words: one for one in (*_READS, *_WRITES)}, NEVER, NEVER_OPTIONS)


_PASSED = ("GH_TOKEN", "GITHUB_TOKEN", "GH_HOST", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")

_QUIET = {
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "GH_NO_EXTENSION_UPDATE_NOTIFIER": "1",
    "GH_SPINNER_DISABLED": "1",
    "GH_PAGER": "cat",
    "PAGER": "cat",
    "GH_BROWSER": "false",
    "BROWSER": "false",
    "GH_EDITOR": "false",
    "GIT_EDITOR": "false",
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_DIR": "/dev/null",
    "NO_COLOR": "1",
    "CLICOLOR": "0",
    "TERM": "dumb",
    "LC_ALL": "C.UTF-8",
}
"""No questions, pager, browser, editor or repository."""

_DEFINITION: dict[str, Any] = {
    "name": "gh-cli",
    "title": "GitHub",
    "description": (
        "Run one sub-command of GitHub's `gh`, such as `pr list --repo OWNER/REPO --json number,title`, `issue view 12 "
        "--repo OWNER/REPO`, `search code …`, `api repos/OWNER/REPO/commits` (GET only). No shell. Reading runs at "
        "once; creating, commenting, merging and so on ask a person. Sign-in, configuration, extensions, files and "
        "the browser are refused. Long output is cut."
    ),
    "inputSchema": one_command("The sub-command with its options."),
    "annotations": CHANGES_ELSEWHERE,
}


class GhCli(ServiceCli[GhCliSettings]):
    """The tool."""

    name, program, definition = "gh-cli", "gh", _DEFINITION
    passed, quiet, folder_variable = _PASSED, _QUIET, "GH_CONFIG_DIR"

    def _folder(self) -> str:
        own = os.environ.get("GH_CONFIG_DIR", "")
        if own:
            return own
        base = os.environ.get("XDG_CONFIG_HOME", "")
        return str(Path(base, "gh") if base else Path.home() / ".config" / "gh")

    def _variables(self) -> Mapping[str, str]:
        return {"GH_REPO": self._settings.repository} if self._settings.repository else {}

    def _verdict(self, call: Call) -> Verdict:
        """What the call means, if it may be run.

        Raises:
            BridgeError: it may not.
        """
        verdict = judge(GH, words_of(text_argument(call, "command")))
        self._running.check(verdict)
        is_of_one = "--repo" in verdict.command.options and verdict.command.words[0] != "search"
        if (
            is_of_one
            and not self._settings.repository
            and not {"-R", "--repo", "-o", "--org", "-u", "--user"} & {*verdict.given}
        ):
            raise ArgumentsRefused(f"`gh {' '.join(verdict.command.words)}` needs --repo OWNER/REPO")
        return verdict
