"""The pages of servers: adding, editing with a diff, undoing, starting and stopping, and who may not."""

import hashlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx2
import pytest

from support.console import Home
from support.console import home as running
from support.harness import python_server

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def home() -> Iterator[Home]:
    with running({"servers": {"gated": python_server("gated")}}) as one:
        text = one.config.read_text()
        one.config.write_text(f"# my servers\n{text}")
        yield one


def test_a_person_adds_a_server_sees_the_diff_and_undoes_it(page: "Page", home: Home) -> None:
    """Issue 20, item 6: a diff before it is written, comments kept, undo."""
    before = home.config.read_text()
    page.get_by_role("link", name="Servers").click()
    page.get_by_role("button", name="Add a server").click()
    page.get_by_label("Name", exact=True).fill("plain")
    page.get_by_label("A program that the bridge starts").check()
    server = python_server("plain")
    page.get_by_label("Command", exact=True).fill(" ".join([server["command"], *server["args"]]))
    page.get_by_label(re.compile("^Variables")).fill("COLOUR=blue")
    page.get_by_role("button", name="Show the change").click()
    page.get_by_role("heading", name="Plain is added").wait_for()
    assert "COLOUR" in page.get_by_label("The change as a diff").inner_text()
    assert home.config.read_text() == before
    page.get_by_role("button", name="Write it").click()
    page.get_by_text("The bridge has taken it in").wait_for()
    assert home.config.read_text().startswith("# my servers\n")
    assert "COLOUR" in home.config.read_text()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("heading", name="Servers").wait_for()
    assert home.config.read_text() == before


def test_a_file_that_somebody_else_changed_is_a_conflict(page: "Page", home: Home) -> None:
    """Issue 20, item 6."""
    page.get_by_role("link", name="Servers").click()
    page.get_by_role("link", name="Edit servers.toml").click()
    text = page.locator("textarea")
    text.fill(f"{text.input_value()}\n[console]\nsign_in_lifetime = 3600\n")
    page.get_by_role("button", name="Show the change").click()
    page.get_by_label("The change as a diff").wait_for()
    home.config.write_text(f"{home.config.read_text()}\n# somebody else\n")
    page.get_by_role("button", name="Write it").click()
    page.get_by_text("changed by somebody else").wait_for()
    assert "sign_in_lifetime" not in home.config.read_text()


def test_a_wrong_edit_says_where_and_writes_nothing(page: "Page", home: Home) -> None:
    before = home.config.read_text()
    page.get_by_role("link", name="Servers").click()
    page.get_by_role("link", name="Edit servers.toml").click()
    page.locator("textarea").fill("[servers.gated]\ncomand = 'x'\n")
    page.get_by_role("button", name="Show the change").click()
    assert "comand" in page.get_by_role("alert").filter(has_text="comand").inner_text()
    assert home.config.read_text() == before


def test_a_person_starts_stops_and_switches_off_a_server(page: "Page", home: Home) -> None:
    page.get_by_role("link", name="Servers").click()
    page.get_by_role("link", name="gated").click()
    page.get_by_role("button", name=re.compile("Start|Restart")).click()
    page.get_by_text("ready", exact=True).wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("idle", exact=True).wait_for()
    page.get_by_role("button", name="Switch off").click()
    page.locator("#state").get_by_text("disabled", exact=True).wait_for()
    assert "disabled = true" in home.config.read_text()
    page.get_by_role("button", name="Switch on").click()
    page.get_by_role("button", name="Switch off").wait_for()


def test_who_signed_in_with_a_token_adds_nothing_that_runs_here() -> None:
    """Issue 20, item 6: that takes a person who is signed in by `mcpbridge ui` on this machine."""
    digest = hashlib.sha256(b"an admin token of a test").hexdigest()
    look = hashlib.sha256(b"a looking token of a test").hexdigest()
    tokens = [{"name": "ann", "sha256": digest, "admin": True}, {"name": "lou", "sha256": look, "console": True}]
    switched_off = {"off": {**python_server("gated"), "disabled": True}}
    config = {"servers": switched_off, "http": {"tokens": tokens}, "daemon": {"http": "127.0.0.1:0"}}
    with running(config) as home, httpx2.Client() as client:
        start = home.link().partition("/enter")[0]
        origin = {"origin": start.removesuffix("/console")}
        assert client.post(f"{start}/enter", data={"token": "wrong"}, headers=origin).status_code == 403
        assert (
            client.post(f"{start}/enter", data={"token": "an admin token of a test"}, headers=origin).status_code == 303
        )
        page = client.get(f"{start}/configuration/new").text
        found = re.search(r'name="form_token" value="([0-9a-f]{64})"', page)
        assert found
        form = {"form_token": found[1], "name": "x"}
        program = {**form, "kind": "command", "command": sys.executable}
        refused = client.post(f"{start}/configuration/new", data=program, headers=origin)
        assert refused.status_code == 422
        assert "mcpbridge ui" in refused.text
        for value in ({"url": "https://e.example/mcp", "headers": "A=${HOME}"}, {"url": "file:///etc/passwd"}):
            answer = client.post(f"{start}/configuration/new", data={**form, "kind": "url", **value}, headers=origin)
            assert answer.status_code == 422
        assert client.post(f"{start}/configuration/file", data={**form, "text": ""}, headers=origin).status_code == 422
        assert client.get(f"{start}/configuration/file").status_code == 422
        off = client.post(f"{start}/servers/off/enable", data=form, headers=origin)
        assert off.status_code == 422
        assert "disabled = true" in home.config.read_text()
        fine = {**form, "kind": "url", "url": "https://e.example/mcp"}
        answer = client.post(f"{start}/configuration/new", data=fine, headers=origin, follow_redirects=True)
        assert "Write it" in answer.text
    with running(config) as home, httpx2.Client() as client:
        start = home.link().partition("/enter")[0]
        origin = {"origin": start.removesuffix("/console")}
        assert (
            client.post(f"{start}/enter", data={"token": "a looking token of a test"}, headers=origin).status_code
            == 303
        )
        page = client.get(f"{start}/servers").text
        assert "Add a server" not in page
        token = re.search(r'name="form_token" value="([0-9a-f]{64})"', page)
        assert token
        answer = client.post(f"{start}/configuration/new", data={"form_token": token[1], "name": "x"}, headers=origin)
        assert answer.status_code == 403


def test_a_server_may_be_called_as_a_page_is() -> None:
    """Its page is there whatever its name is, and so are the pages that add and change servers."""
    names = ("new", "file", "import", "drafts", "configuration", "servers")
    server = {**python_server("gated"), "disabled": True}
    with running({"servers": dict.fromkeys(names, server)}) as home, httpx2.Client(follow_redirects=True) as client:
        link = home.link()
        client.get(link)
        start = link.partition("/enter")[0]
        listed = client.get(f"{start}/servers").text
        for name in names:
            assert f'href="/console/servers/{name}"' in listed
            shown = client.get(f"{start}/servers/{name}")
            assert shown.status_code == 200
            assert f"<h1>{name}</h1>" in shown.text
            assert client.get(f"{start}/servers/{name}/state").status_code == 200
        assert "Add a server" in client.get(f"{start}/configuration/new").text
        assert "[servers.new]" in client.get(f"{start}/configuration/file").text
