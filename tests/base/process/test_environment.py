"""What programs get of the bridge's environment: enough to reach the network, and no secret of it (issue 18)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.daemon.client_variables import more_network
from mcpbridge.app.doctor.config_file import Source, about_withheld
from mcpbridge.base.process.environment import child_environment, network_variables, withheld_variables
from mcpbridge.config.load import read

HANDED_ON = {
    "SSL_CERT_FILE": "/etc/ca.pem",
    "SSL_CERT_DIR": "/etc/ca",
    "REQUESTS_CA_BUNDLE": "/etc/ca.pem",
    "NODE_EXTRA_CA_CERTS": "/etc/ca.pem",
    "HTTP_PROXY": "http://proxy:3128",
    "HTTPS_PROXY": "proxy.corp:3128",
    "NO_PROXY": "localhost,.corp",
    "http_proxy": "http://[::1]:3128/",
    "https_proxy": "socks5h://proxy",
    "no_proxy": "*",
    "ALL_PROXY": "socks5://proxy:1080",
    "UV_INDEX_URL": "https://pypi.corp/simple",
    "UV_DEFAULT_INDEX": "corp=https://pypi.corp/@team/simple",
    "UV_INDEX": "https://a/simple https://b:8443/simple",
    "UV_EXTRA_INDEX_URL": "https://a/",
    "UV_NATIVE_TLS": "1",
    "PIP_INDEX_URL": "https://pypi.corp/simple",
    "PIP_TRUSTED_HOST": "pypi.corp",
    "PIP_EXTRA_INDEX_URL": "https://a https://b",
    "npm_config_registry": "https://npm.corp/",
    "NPM_CONFIG_REGISTRY": "https://npm.corp/",
    "npm_config_@corp:registry": "https://npm.corp/",
    "npm_config_cafile": "/etc/ca.pem",
    "npm_config_https_proxy": "http://proxy:1",
}
WITHHELD = {
    "HTTPS_PROXY": "http://user:pass-word@proxy:3128",
    "https_proxy": "http://user@proxy:3128",
    "HTTP_PROXY": "user:pass@proxy:3128",
    "http_proxy": "http://us%40er:p%2Fw@proxy",
    "ALL_PROXY": "socks5://u:p@proxy",
    "UV_INDEX_URL": "https://u:p@pypi.corp/simple",
    "UV_INDEX": "https://a/simple b=https://u:p@b/simple",
    "UV_EXTRA_INDEX_URL": "https://a/?access_token=x",
    "UV_INDEX_CORP_PASSWORD": "x",
    "UV_PUBLISH_TOKEN": "x",
    "PIP_INDEX_URL": "https://token@pypi.corp/simple",
    "PIP_EXTRA_INDEX_URL": "https://a https://u:pa/ss@b",
    "npm_config__auth": "x",
    "npm_config_//npm.corp/:_authToken": "x",
    "NPM_CONFIG__PASSWORD": "x",
    "npm_config_registry": "https://u:p@npm.corp/",
    "npm_config_proxy": "u:p@proxy",
}
OF_NO_CONCERN = [
    "GITHUB_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "UV_PYTHON",
    "UV_PROJECT",
    "PIP_USER",
    "npm_config_prefix",
    "npm_config_user_agent",
    "LD_PRELOAD",
    "PYTHONPATH",
    "NODE_OPTIONS",
    "Http_Proxy",
    "UV_CACHE_DIR",
]


@pytest.mark.parametrize(("name", "value"), HANDED_ON.items())
def test_what_says_how_to_reach_the_network_is_handed_on(name: str, value: str) -> None:
    assert child_environment({}, False, {name: value}) == {name: value}
    assert withheld_variables({name: value}) == []


@pytest.mark.parametrize(("name", "value"), WITHHELD.items())
def test_what_carries_a_password_is_handed_on_only_by_name(name: str, value: str) -> None:
    assert child_environment({}, False, {name: value}) == {}
    assert withheld_variables({name: value}) == [name]
    assert child_environment({}, [name], {name: value}) == {name: value}
    assert child_environment({}, True, {name: value}) == {name: value}


@pytest.mark.parametrize("name", OF_NO_CONCERN)
def test_everything_else_stays_here(name: str) -> None:
    assert child_environment({}, False, {name: "x"}) == {}
    assert withheld_variables({name: "x"}) == []


def test_a_servers_own_value_comes_last() -> None:
    parent = {"HTTPS_PROXY": "http://a"}
    assert child_environment({"HTTPS_PROXY": "http://b"}, False, parent) == {"HTTPS_PROXY": "http://b"}


_PART = st.text(st.characters(categories=["L", "N"], max_codepoint=127), min_size=1, max_size=8)


@given(st.sampled_from(["http", "https", "socks5", "socks5h"]), _PART, _PART, _PART, st.booleans())
def test_a_password_in_a_url_never_passes(scheme: str, user: str, password: str, host: str, is_list: bool) -> None:
    url = f"{scheme}://{user}:{password}@{host}:8080/simple"
    value = f"https://first/simple {url}" if is_list else url
    for name in ("HTTPS_PROXY", "UV_INDEX", "PIP_EXTRA_INDEX_URL", "npm_config_registry", "NO_PROXY"):
        assert network_variables({name: value}) == {}


def test_a_daemon_takes_over_what_it_lacks_and_no_password() -> None:
    theirs = {"HTTPS_PROXY": "http://p", "http_proxy": "http://u:p@p", "SSL_CERT_FILE": "/ca", "GITHUB_TOKEN": "x"}
    assert more_network({}, theirs) == {"HTTPS_PROXY": "http://p", "SSL_CERT_FILE": "/ca"}
    assert more_network({"https_proxy": "http://mine"}, theirs) == {"SSL_CERT_FILE": "/ca"}, "another spelling counts"
    assert more_network(theirs, theirs) == {}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", ["HTTPS_PROXY", "UV_INDEX_CORP_PASSWORD"]),
        ('inherit_env = ["HTTPS_PROXY"]', ["UV_INDEX_CORP_PASSWORD"]),
        ('env = { HTTPS_PROXY = "http://x" }', ["UV_INDEX_CORP_PASSWORD"]),
        ('inherit_env = ["UV_INDEX_CORP_PASSWORD", "HTTPS_PROXY"]', []),
        ("inherit_env = true", []),
        ("disabled = true", []),
    ],
)
def test_the_doctor_says_what_a_server_does_not_get(tmp_path: Path, more: str, expected: list[str]) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(f'[servers.a]\ncommand = "x"\n{more}\n[servers.web]\nurl = "https://x.invalid/"\n')
    environ = {
        "HTTPS_PROXY": "http://user:pass-word@p",
        "UV_INDEX_CORP_PASSWORD": "pass-word",
        "HTTP_PROXY": "http://p",
    }
    found = list(about_withheld(read(file, {}).settings, environ, Source.read(str(file))))
    assert [one.code for one in found] == ["variable-withheld"] * bool(expected)
    for one in found:
        assert all(name in one.what for name in expected)
        assert all(f'"{name}"' in one.fix for name in expected)
        assert "pass-word" not in f"{one.what}{one.why}{one.fix}"
