"""A person signs in with a real browser: cookies, forms, headers and what pages may load are the browser's own."""

import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx2
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from mcpbridge.app.sign_in.app import make_sign_in
from mcpbridge.app.sign_in.authorization_server import AuthorizationServer
from mcpbridge.app.sign_in.identity_provider import challenge_of
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings
from mcpbridge.downstream.settings import ResourceServerSettings
from mcpbridge.storage.memory_store import MemoryStore
from mcpbridge.storage.token_store import MemorySecrets
from support.console import ARGUMENTS, CHROMIUM, PATIENCE
from support.identity_providers import MockProvider, answer_in, mock_provider

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

VERIFIER = "v" * 64


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    if not CHROMIUM:
        pytest.skip("chromium is not installed: `make browser` installs Debian's")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def listening_client() -> Generator[tuple[str, list[str]]]:
    """A program that waits for its answer: its address, and what it got."""
    got: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.path)
            self.send_response(200)
            self.send_header("content-length", "6")
            self.end_headers()
            self.wfile.write(b"thanks")

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - as it is called there

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/callback", got
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def authorization_server(provider: MockProvider) -> Generator[str]:
    """Served over a real socket; gives its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        origin = f"http://localhost:{listener.getsockname()[1]}"
        app: Any = None

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal app
            if scope["type"] != "http":
                return
            if app is None:  # on the loop that serves it
                settings = ResourceServerSettings(resource=f"{origin}/mcp", scopes=["tools"])
                sign_in = SignInSettings(issuer=provider.issuer, client_id="bridge", client_secret="secret")
                app = make_sign_in(AuthorizationServer(settings, sign_in, MemoryStore(), MemorySecrets(), path="/mcp"))
            await app(scope, receive, send)

        server = uvicorn.Server(uvicorn.Config(serve, lifespan="off", log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield origin
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[str, str, list[str]]]:
    """Where the bridge is, where the client waits, and what it got."""
    with mock_provider() as provider, authorization_server(provider) as origin, listening_client() as (back, got):
        yield origin, back, got


@pytest.fixture
def page(browser: "Browser") -> "Iterator[Page]":
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if "Content Security" in message.text else None)
    yield page
    context.close()
    assert problems == []


def begin(origin: str, back: str) -> tuple[str, str]:
    """A client that has registered; its id, and the page that it opens."""
    wanted = {"redirect_uris": [back], "client_name": "Probe", "token_endpoint_auth_method": "none"}
    registered = httpx2.post(f"{origin}/oauth/register", json=wanted, timeout=60).json()
    parameters = {
        "response_type": "code",
        "client_id": registered["client_id"],
        "redirect_uri": back,
        "code_challenge": challenge_of(VERIFIER),
        "code_challenge_method": "S256",
        "state": "its state",
    }
    return registered["client_id"], f"{origin}/oauth/authorize?{urlencode(parameters)}"


def test_a_person_agrees_signs_in_and_is_back_at_the_program(place: tuple[str, str, list[str]], page: "Page") -> None:
    origin, back, got = place
    client_id, url = begin(origin, back)
    page.goto(url)
    assert page.get_by_role("heading", level=1).inner_text() == "Let a program use your tools?"
    assert "Probe" in page.inner_text("main")
    page.get_by_role("button", name="Sign in and let it in").click()
    page.fill('input[name="sub"]', "alice")
    page.get_by_role("button", name="Authorize").click()
    page.wait_for_url(f"{back}**")
    assert page.inner_text("body") == "thanks"
    answer = answer_in(got[-1])
    assert (answer["state"], answer["iss"]) == ("its state", origin)
    form = {
        "grant_type": "authorization_code",
        "client_id": client_id,
        "code": answer["code"],
        "redirect_uri": back,
        "code_verifier": VERIFIER,
    }
    tokens = httpx2.post(f"{origin}/oauth/token", data=form, timeout=60)
    assert tokens.status_code == 200, tokens.text


def test_a_person_who_says_no_is_back_at_the_program_too(place: tuple[str, str, list[str]], page: "Page") -> None:
    origin, back, got = place
    _, url = begin(origin, back)
    page.goto(url)
    page.get_by_role("button", name="No").click()
    page.wait_for_url(f"{back}**")
    assert answer_in(got[-1])["error"] == "access_denied"


def test_a_page_inside_another_page_shows_nothing(place: tuple[str, str, list[str]], browser: "Browser") -> None:
    origin, back, _ = place
    _, url = begin(origin, back)
    context = browser.new_context()
    page = context.new_page()
    page.set_content(f'<iframe src="{url.replace("&", "&amp;")}"></iframe>')
    page.wait_for_load_state("networkidle")
    frame = page.frames[-1]
    assert "Let a program" not in frame.content()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_can_be_used_by_everybody(place: tuple[str, str, list[str]], browser: "Browser", scheme: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    origin, back, _ = place
    _, url = begin(origin, back)
    context = browser.new_context(color_scheme=scheme, viewport={"width": 390, "height": 800}, bypass_csp=True)
    page = context.new_page()
    page.goto(url)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    axe: Any = Axe()
    found = axe.run(page)
    assert found.violations_count == 0, found.generate_report()
    context.close()
