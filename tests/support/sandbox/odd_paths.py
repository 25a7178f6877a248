"""Paths that models, and those who write what models read, come up with; see `test_paths.py`."""

from collections.abc import Sequence

__all__ = ["ALLOWED", "REFUSED_AT_SIGHT", "STAYS_OUT", "UNREAD", "UNWRITTEN"]

REFUSED_AT_SIGHT: Sequence[str] = (
    # upwards
    "..", "../", "../outside/secret.txt", "../../etc/passwd", "a/../../outside/secret.txt", "./../outside/secret.txt",
    "a/b/../../../outside/secret.txt", "a/./../..", "a//..//..//x", "....//../..", ".. /x", "../.",
    "a/../../root/a.txt",
    "/../etc/passwd", "/../../../../../../etc/shadow", "a/b/c/../../../../x", "..//", "./..", "././../x",
    # dots that look like them
    "...", "....", "a/.../b", ".. ", " ..", ". .", "..\u200b", "\u200b..", ".\u200b.", "．．", "‥", "…", "a/．．/b",
    "‥/x", "．．／etc", "..／outside", "a／..／b", "..∕x\u0000", "\ufe0f..", ".\u00ad.", "\u3000..", "\u2060",
    # control and invisible characters
    "\x00", "a.txt\x00", "a.txt\x00.png", "a\nb", "a\rb", "a\tb", "\x1b[2Ja", "a\x7f", "a\x85b", "\x9b31m",
    "a\u2028b",
    "a\u2029b", "a\u202etxt.exe", "\u2066a", "a\u200fb", "\ud800", "a\udcff",
    # other systems
    "C:", "C:\\", "c:/windows/win.ini", "C:windows", "z:a.txt", "/C:/x", "\\\\server\\share\\x", "//server/share/x",
    "\\\\?\\C:\\x", "//?/C:/x", "\\\\.\\PhysicalDrive0", "a\\b", "..\\..\\x", "a\\..\\..\\x", "\\etc\\passwd", "\\",
    "a.txt::$DATA", "a.txt:$DATA", ".git::$INDEX_ALLOCATION/config", "a/b:$I30:$INDEX_ALLOCATION/c",
    # addresses
    "file:///etc/passwd", "file://localhost/etc/passwd", "http://example.com/a", "smb://host/x", "data://x",
    # homes
    "~", "~/", "~/.ssh/id_rsa", "~/a.txt",
    # sizes
    "a" * 256, "ä" * 128, "a/" * 101, "x/" * 2001, "a" * 100_000, "../" * 1000, f"{'a' * 255}/{'b' * 256}",
)  # fmt: skip
"""Refused by their looks alone."""

STAYS_OUT: Sequence[str] = (
    "/etc/passwd", "/etc/./passwd", "/proc/self/environ", "/proc/self/root/etc/passwd", "/dev/null", "/", "/root",
    "{outside}/secret.txt", "{root}/../outside/secret.txt", "{root}x/secret.txt", "{root}./secret.txt",
    "out/secret.txt", "out/../outside/secret.txt", "out", "abs", "abs/secret.txt", "a/up/outside/secret.txt",
    "a/up", "chain1/secret.txt", "chain1", "loop", "loop/x", "loop1", "self/secret.txt", "dangling",
    "dangling/x", "a/far", "etc/passwd", "a/etc", "%2e%2e/outside/secret.txt", "..%2foutside%2fsecret.txt",
    "..%c0%af..%c0%afetc/passwd", "%252e%252e/x", "a.txt/x", "a.txt/../a.txt/b", "file.txt/..",
    "a/..;/outside/secret.txt", "$HOME/x", "${{HOME}}/x", "`id`", "$(id)", "|id", "a.txt;id", "*", "?", "a*", "[a]",
    "-rf", "--help", "@a.txt", "nul", "CON", "aux.txt", "fifo", "socket", "to-fifo", "to-null", "a", "a/b", ".", "",
)  # fmt: skip
"""Not refused by their looks, and yet nothing is read: missing, directories, links that lead out, no regular files."""

ALLOWED: Sequence[tuple[str, str]] = (
    ("a.txt", "alpha"), ("./a.txt", "alpha"), ("a.txt/", "alpha"), (".//a.txt", "alpha"), ("a/../a.txt", "alpha"),
    ("a/b/../../a.txt", "alpha"),
    ("a/b/c.txt", "gamma"), ("a//b///c.txt", "gamma"), ("missing/../a.txt", "alpha"), ("{root}/a.txt", "alpha"),
    ("{root}/./a/../a.txt", "alpha"), ("{root}//a.txt", "alpha"), ("to-a", "alpha"), ("to-dir/c.txt", "gamma"),
    ("to-dir-abs/c.txt", "gamma"), ("to-abs", "alpha"), ("a/back/a.txt", "alpha"), ("a/b/up2/a.txt", "alpha"),
    ("deep1", "gamma"), ("to-dir/../a.txt", "alpha"), ("höhe/ü.txt", "umlaut"), ("空/文.txt", "han"),
    ("sp ace/x y.txt", "space"),
    ("..a", "dots"), ("a..b", "dots"), ("...a", "dots"), ("12:30.log", "colon"), ("~a", "tilde"), ("#a", "hash"),
    ("👩\u200d💻.txt", "emoji"), ("{spelt}/a.txt", "alpha"), ("{spelt}/to-a", "alpha"),
)  # fmt: skip
"""Paths of files that are beneath the root, and what stands in these."""

UNWRITTEN: Sequence[str] = (
    ".git/hooks/pre-commit", ".git/config", ".GIT/config", ".Git/Hooks/x", ".git/x", ".git", "sub/.git/config",
    ".git./config", ".git /config", ".git:x/config", ".g\u200cit/config", ".gi\u200dt/hooks/x", "．git/config",
    ".ｇｉｔ/config",
    ".gıt/config", "GIT~1/config", "git~2/hooks/x", "bare.git/hooks/post-update", "bare.git/config",
    "Bare.GIT/HOOKS/x",
    ".gitmodules", "sub/.gitModules", ".hg/hgrc", ".svn/x", ".husky/pre-commit", ".gitconfig", ".mcp.json",
    ".MCP.json",
    "sub/.mcp.json", "mcp.json", "MCP~1.JSO", ".vscode/tasks.json", ".VSCode/settings.json", "x/.vscode/mcp.json",
    ".cursor/mcp.json", ".cursor/rules/x", ".claude/settings.json", ".claude.json", "claude_desktop_config.json",
    ".codex/config.toml", ".gemini/settings.json", ".idea/workspace.xml", ".zed/tasks.json", ".devcontainer/x.json",
    ".windsurf/x", ".roo/mcp.json", ".github/workflows/ci.yml", ".GitHub/Workflows/x.yml",
    ".github/actions/x/action.yml",
    ".gitlab-ci.yml", ".pre-commit-config.yaml", ".bashrc", ".BASHRC", ".bash_profile", ".profile", ".zshrc",
    ".zshenv",
    ".zprofile", ".envrc", ".inputrc", ".config/fish/config.fish", ".config/autostart/x.desktop",
    ".config/systemd/user/x",
    ".config/mcpbridge/servers.toml", ".local/bin/x", ".xinitrc", ".vimrc", ".exrc", ".emacs", ".gdbinit", ".pdbrc",
    "sitecustomize.py", "x/usercustomize.py", "x.pth", "Library/LaunchAgents/x.plist", ".ssh/authorized_keys",
    ".ssh/config",
    ".ſsh/id_rsa", ".SSH/x", "authorized_keys", "id_rsa", "id_ed25519", "server.pem", "tls.KEY", ".env", ".ENV",
    ".env.local",
    "x/.env.production", ".netrc", ".npmrc", ".pypirc", ".aws/credentials", ".kube/config", ".docker/config.json",
    ".gnupg/x",
    "a.txt:stream", "new:stream", "new.", "new ", "sub./x", "nul", "CON.txt", "aux", "com1.log", "LPT9", "CONIN$",
    "NEW~1.TXT",
    "to-git/config", "to-git/new", "to-env", "a.txt:", "ｃｌａｕｄｅ/../.claude/x", "{root}/.git/config",
    "a/../.git/config",
    "CLAUDE.md", "docs/AGENTS.md", "gemini.md", ".github/copilot-instructions.md", "venv/pyvenv.cfg", ".gitattributes",
    "bare/HEAD", "HEAD",
    "sub/secrets/x", "sub/SECRETS/x", "sub/kept/a.lock", "sub/kept/b/a.LOCK", "hidden/x", "x/hidden", "Hidden/y",
)  # fmt: skip
"""Never written."""

UNREAD: Sequence[str] = (
    ".env", ".ENV", ".env.local", ".git/config", ".ssh/id_rsa", ".ssh/known_hosts", ".SSH/id_rsa", ".netrc", ".npmrc",
    ".aws/credentials", "server.pem", "tls.KEY", "id_ed25519", "to-env", "to-git/config", "hidden/x", "HIDDEN/x",
    "x/hidden",
)  # fmt: skip
"""Not read as they stand."""
