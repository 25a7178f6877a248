# ruff: noqa: E501 - what programs wrote
"""Of what a program said before it failed, the line that tells why is shown (issue 18)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.process.failure_line import telling_line

CASES = {
    "uv: no such package": (
        """  × No solution found when resolving tool dependencies:
  ╰─▶ Because mcp-nope was not found in the package registry and you require
      mcp-nope, we can conclude that your requirements are unsatisfiable.

      hint: The package index URL (https://x/) could not be queried.""",
        "Because mcp-nope was not found in the package registry",
    ),
    "uv: an executable": (
        "error: An executable named `x` is not provided by package `y`.\nhint: Did you mean `uvx --from y z`?",
        "An executable named `x` is not provided",
    ),
    "uv: causes": (
        (
            "error: Failed to fetch: `https://pypi.org/simple/x/`\n  Caused by: Request failed\n"
            "  Caused by: invalid peer certificate: UnknownIssuer"
        ),
        "UnknownIssuer",
    ),
    "Python": (
        (
            'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    import x\n'
            "ModuleNotFoundError: No module named 'x'"
        ),
        "ModuleNotFoundError: No module named 'x'",
    ),
    "Python, and a farewell": (
        "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'API_KEY'\nINFO: shutting down\nhint: set it",
        "KeyError: 'API_KEY'",
    ),
    "Python: one after the other": (
        (
            "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n"
            'Traceback (most recent call last):\n  File "x"\nRuntimeError: no configuration'
        ),
        "RuntimeError: no configuration",
    ),
    "Python: a group": (
        (
            "  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: unhandled errors in a TaskGroup "
            "(1 sub-exception)\n  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n"
            '    |   File "a.py", line 3\n    | ValueError: port is taken\n    +------------------------------------'
        ),
        "ValueError: port is taken",
    ),
    "Python: a class in a package": ('  File "x"\nhttpx.ConnectError: [Errno 111] refused', "httpx.ConnectError"),
    "Python: no text": ('  File "x"\nNotImplementedError\n', "NotImplementedError"),
    "pydantic": (
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings\napi_key\n"
            "  Field required [type=missing, input_value={}, input_type=dict]\n"
            "    For further information visit https://errors.pydantic.dev/2.11/v/missing"
        ),
        "Settings api_key Field required",
    ),
    "Python: a warning after it": (
        "ValueError: bad token\n/x/y.py:3: DeprecationWarning: this will go\n  warnings.warn(",
        "ValueError: bad token",
    ),
    "npm: not found": (
        (
            "npm error code E404\nnpm error 404 Not Found - GET https://registry.npmjs.org/@a%2fb - Not found\n"
            "npm error 404\n"
            "npm error 404  '@a/b@*' is not in this registry.\nnpm error 404\n"
            "npm error 404 Note that you can also install from a\nnpm error 404 tarball, folder, http url, or git folder.\n"
            "npm error A complete log of this run can be found in: /root/.npm/_logs/x.log"
        ),
        "404 Not Found - GET https://registry.npmjs.org/@a%2fb",
    ),
    "npm: older": (
        (
            "npm ERR! code ENOTFOUND\nnpm ERR! errno ENOTFOUND\nnpm ERR! network request to https://r/x failed, reason: y\n"
            "\n"
            "npm ERR! A complete log of this run can be found in:\nnpm ERR!     /root/x.log"
        ),
        "network request to https://r/x failed",
    ),
    "Node: a module": (
        (
            "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find module '/app/index.js'\n"
            "    at Module._resolveFilename (node:internal:1)\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\n"
            "Node.js v22.1.0"
        ),
        "Error: Cannot find module '/app/index.js'",
    ),
    "Node: a code": (
        (
            'TypeError [ERR_INVALID_ARG_TYPE]: The "path" argument must be of type string\n    at Object.x (a.js:1:1)\n\n'
            "Node.js v20.0.0"
        ),
        "TypeError [ERR_INVALID_ARG_TYPE]",
    ),
    "docker": (
        (
            "Unable to find image 'x:latest' locally\ndocker: Error response from daemon: pull access denied for x.\n\n"
            "Run 'docker run --help' for more information"
        ),
        "pull access denied",
    ),
    "docker: older": (
        "docker: Cannot connect to the Docker daemon at unix:///x.\nSee 'docker run --help'.",
        "Cannot connect to the Docker daemon",
    ),
    "Rust": (
        (
            "thread 'main' panicked at src/main.rs:4:5:\ncalled `Option::unwrap()` on a `None` value\n"
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace"
        ),
        "called `Option::unwrap()`",
    ),
    "Go": (
        "panic: GITHUB_TOKEN not set\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/main.go:5 +0x1\nexit status 2",
        "panic: GITHUB_TOKEN not set",
    ),
    "Java": (
        'Exception in thread "main" java.lang.IllegalStateException: no port\n\tat a.B.main(B.java:1)\n\t... 5 more',
        "IllegalStateException: no port",
    ),
    "argparse": (
        "usage: server [-h] --token TOKEN\nserver: error: the following arguments are required: --token",
        "the following arguments are required: --token",
    ),
    "click": (
        "Usage: server [OPTIONS]\nTry 'server --help' for help.\n\nError: Missing option '--token'.",
        "Missing option '--token'",
    ),
    "a shell": ("sh: 1: mcp-server: not found", "mcp-server: not found"),
    "bash": ("bash: line 1: mcp-server: command not found\nhint: install it", "command not found"),
    "Ruby": (
        "main.rb:3:in 'fetch': key not found: \"A\" (KeyError)\n\tfrom main.rb:3:in '<main>'",
        "key not found",
    ),
    "its own words": (
        "Starting server\nGITHUB_TOKEN environment variable is required\nSee https://x for help\nhint: export it",
        "GITHUB_TOKEN environment variable is required",
    ),
    "a log": (
        (
            "2026-01-01 INFO starting\n2026-01-01 ERROR could not bind: address in use\n"
            "2026-01-01 INFO no error handlers left"
        ),
        "address in use",
    ),
    "nothing but words": ("first\nsecond\nlast words", "last words"),
    "nothing but a hint": ("hint: buy another one", "hint: buy another one"),
    "nothing": ("\n\n  \n", ""),
}


@pytest.mark.parametrize(("said", "telling"), CASES.values(), ids=CASES)
def test_the_cause_is_shown_and_not_what_stands_around_it(said: str, telling: str) -> None:
    found = telling_line(said.split("\n"))
    assert telling in found
    assert "\n" not in found
    assert bool(found) == bool(telling)


_CAUSES = {name: case for name, case in CASES.items() if not name.startswith("nothing")}


@pytest.mark.parametrize(("said", "telling"), _CAUSES.values(), ids=_CAUSES)
def test_a_hint_behind_it_changes_nothing(said: str, telling: str) -> None:
    assert telling in telling_line([*said.split("\n"), "", "hint: try something else", "note: or not"])


@given(st.lists(st.text(max_size=80), max_size=30))
def test_any_lines_give_one_line_of_theirs(lines: list[str]) -> None:
    found = telling_line(lines)
    assert len(found) <= 400
    assert "\n" not in found
    if not any(line.strip() for line in lines):
        assert found == ""
