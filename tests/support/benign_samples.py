"""Texts that look as if they held a secret and hold none, by what they are."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from support.secret_samples import ALNUM, HEX, Draw


@dataclass(frozen=True, slots=True)
class BenignSample:
    """A text of which nothing may be replaced."""

    format: str
    text: str


def _hex(draw: Draw, length: int) -> Callable[[], str]:
    return lambda: draw.chars(HEX, length)


def _by_format(draw: Draw) -> Iterator[tuple[str, list[str]]]:
    uuid, sha1, sha256, md5 = draw.uuid, _hex(draw, 40), _hex(draw, 64), _hex(draw, 32)
    yield (
        "uuid",
        [
            f"order {uuid()} was shipped",
            json.dumps({"id": uuid(), "parent_id": uuid()}),
            f"request_id={uuid()} status=200",
            f"https://app.example.net/projects/{uuid()}/boards/{uuid()}",
            f"trace: {uuid()}\nspan: {draw.chars(HEX, 16)}\n",
            f"X-Request-Id: {uuid()}",
        ],
    )
    yield (
        "git",
        [
            f"commit {sha1()}\nAuthor: Ada\n\n    Rotate the token on sign-out",
            f"https://github.com/acme/site/commit/{sha1()}",
            f"index {draw.chars(HEX, 7)}..{draw.chars(HEX, 7)} 100644",
            f"Merge branch 'secrets-cleanup' at {draw.chars(HEX, 12)}",
            json.dumps({"sha": sha1(), "tree": {"sha": sha1()}}),
            f"git checkout {sha1()} -- src/auth/token.py",
            f"uses: actions/checkout@{sha1()} # v4.2.2",
        ],
    )
    yield (
        "digest",
        [
            f"{sha256()}  mcp-1.2.3.tar.gz",
            f"image: registry.example.net/api@sha256:{sha256()}",
            json.dumps({"digest": f"sha256:{sha256()}", "size": 5123}),
            f'ETag: "{md5()}"',
            json.dumps({"etag": f'"{md5()}-12"', "checksum": md5()}),
            f"md5sum: {md5()}",
            f"Content-MD5: {draw.base64(16)}",
            f'"integrity": "sha512-{draw.base64(64)}"',
            f'<script src="a.js" integrity="sha384-{draw.base64(48)}" crossorigin="anonymous"></script>',
            f"h1:{draw.base64(32)} golang.org/x/crypto v0.31.0",
            f"cache-key: linux-node-{sha256()}",
            f"fingerprint: SHA256:{draw.base64(32)[:-1]}",
        ],
    )
    yield (
        "image",
        [
            f"data:image/png;base64,iVBORw0KGgo{draw.base64(120)}",
            json.dumps({"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo" + draw.base64(90)}),
            f"![logo](data:image/gif;base64,R0lGODlh{draw.base64(60)})",
            f"background: url(data:font/woff2;base64,d09GMg{draw.base64(60)})",
        ],
    )
    yield (
        "placeholder",
        [
            "export GITHUB_TOKEN=<your-token>",
            "api_key: xxxxxxxxxxxxxxxx",
            'password = "********"',
            json.dumps({"token": "YOUR_TOKEN_HERE"}),
            "OPENAI_API_KEY=sk-...",
            "Authorization: Bearer <token>",
            "Authorization: Bearer $TOKEN",
            "token: ${{ secrets.GITHUB_TOKEN }}",
            "postgres://user:password@localhost/db",
            "postgres://$USER:$PASSWORD@$HOST/db",
            "DATABASE_URL=postgres://{user}:{password}@{host}/{name}",
            'client_secret = "${CLIENT_SECRET}"',
            "password: null",
            json.dumps({"password": None, "token": ""}),
            "secret: {{ .Values.secret }}",
            "api_key=[REDACTED]",
            "AWS_SECRET_ACCESS_KEY=changeme",
            "--token TOKEN",
            "usage: app [--password PASSWORD] [--api-key KEY]",
            "curl -H 'Authorization: Bearer YOUR_API_KEY' https://api.example.net",
            "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ],
    )
    yield (
        "code",
        [
            "token = get_token(request)",
            "password = os.environ['PASSWORD']",
            "const token = await client.fetchToken();",
            "self.api_key = api_key",
            "if (token === undefined) { return null; }",
            "def check_password(password: str, hashed: bytes) -> bool:",
            "let secret: Option<String> = None;",
            "api_key: str | None = Field(default=None)",
            'tokens = tokenizer.encode("hello world")',
            "SELECT token, secret FROM sessions WHERE user_id = $1",
            "private readonly tokenService: TokenService,",
            "public_key = load_public_key(path)",
            "credentials = Credentials.from_file(path)",
            'parser.add_argument("--password", help="the password")',
            "password: process.env.DB_PASSWORD,",
            'token := r.Header.Get("X-Token")',
            "max_tokens = 4096",
            json.dumps({"usage": {"input_tokens": 1204, "output_tokens": 88, "total_tokens": 1292}}),
            '<input type="password" name="password" autocomplete="current-password">',
            "key = lambda item: item.name",
            "secret_name: db-credentials",
            "secretKeyRef:\n  name: database\n  key: password\n",
            json.dumps({"tokenType": "Bearer", "expiresIn": 3600}),
            "passwordMinLength: 12",
            "token_endpoint: https://auth.example.net/oauth/token",
            "password_file = /run/secrets/db",
            json.dumps({"type": "object", "properties": {"token": {"type": "string", "description": "The token."}}}),
        ],
    )
    yield (
        "minified",
        [
            '!function(e,t){var n=e.key,r=t.token;for(var o in n)r[o]=n[o].split("").reverse()}(window,document);',
            "var a=function(b){return b.password?1:0},c={token:a,secret:b,key:d};",
            ".a1b2c3d4{color:#a1b2c3}.e5f6{background:#e5f6a7b8}",
            f"/*! {draw.chars(ALNUM, 8)}.js */(self.webpackChunk=self.webpackChunk||[]).push([[1],{{4:e=>{{}}}}]);",
            f'<link rel="stylesheet" href="/assets/index-{draw.chars(ALNUM, 8)}.css">',
            f"sourceMappingURL=main.{draw.chars(HEX, 20)}.js.map",
        ],
    )
    yield (
        "number",
        [
            "ISBN 978-3-16-148410-0",
            "ISBN-10: 0-306-40615-2",
            'resourceVersion: "184467440737"',
            "metadata:\n  uid: 5b1f3a0e-9c7d-4e3b-8f60-2d4c5a6b7e8f\n  generation: 7\n",
            "order number 4006381333931",
            "invoice INV-2026-000417 for PO-88123-A",
            "tracking 1Z999AA10123456784",
            "timestamp=1772619731123456789",
            "version 10.0.19045.3803 build 20260304.1",
            "mcp-bridge==1.14.0rc2+g3f2a9c1",
            "color: #ff8800; border: #1a2b3c80",
            "0xdeadbeefcafebabe at 0x7ffd5e8a1b40",
            "MAC 00:1a:2b:3c:4d:5e, IP 10.0.0.17, fe80::1ff:fe23:4567:890a",
            "phone model SM-G998B/DS, serial RF8N90ABCDE",
            "lat=52.520008&lon=13.404954",
            "pid=48213 tid=140735 rss=183500800",
            "2026-03-04T10:22:11.123456Z",
            "ticket ABC-12345, epic PLAT-9981",
            "part no. 8471-AB-3302-KX",
            "arn:aws:iam::123456789012:role/service-role/build",
            "projects/acme-prod-12345/locations/europe-west1/keyRings/main/cryptoKeys/disk",
            "i-0abcd1234ef567890 in subnet-0123456789abcdef0",
            "customer cus_Q1w2E3r4T5y6U7 paid in_1PabcDEfghIJklMN",
            "channel C02AB3CD4EF, user U01XYZ789AB, team T0ABCDEF1",
            "message id 1129384756102938475",
            "trace_id=4bf92f3577b34da6a3ce929d0e0e4736",
            "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "video https://www.youtube.com/watch?v=dQw4w9WgXcQ",
            "doc https://docs.google.com/document/d/1A2b3C4d5E6f7G8h9I0jK1l2M3n4O5p6Q7r8S9t0U1v2/edit",
        ],
    )
    yield (
        "public",
        [
            f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{draw.base64(32)[:43]} ada@host",
            f"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ{draw.base64(120)} ada@host",
            f"-----BEGIN PUBLIC KEY-----\n{draw.base64(48)}\n{draw.base64(48)}\n-----END PUBLIC KEY-----",
            f"-----BEGIN CERTIFICATE-----\n{draw.base64(48)}\n{draw.base64(48)}\n-----END CERTIFICATE-----",
            f"-----BEGIN PGP SIGNATURE-----\n\n{draw.base64(48)}\n=Ab3x\n-----END PGP SIGNATURE-----",
            f"age1{draw.chars('qpzry9x8gf2tvdw0s3jn54khce6mua7l', 58)}",
            json.dumps(
                {"kty": "EC", "crv": "P-256", "kid": "2026-03", "x": draw.base64url(32), "y": draw.base64url(32)}
            ),
            f"untrusted comment: minisign public key\nRWQ{draw.base64(39)[:53]}",
            f"public_key: {draw.base64(32)}",
            f"google-site-verification={draw.base64url(32)}",
            f"v=DKIM1; k=rsa; p={draw.base64(90)}",
        ],
    )
    yield (
        "prose",
        [
            "The token is refreshed before it expires, so nobody is signed out.",
            "A password reset link was sent. The password must have 12 characters.",
            "Secrets: never commit them. Keys: rotate them each quarter.",
            "Password: at least one digit. Token: issued by the server.",
            "Forgot your password? Reset it here.",
            "The secret to good coffee is fresh beans; the key is the water.",
            "Basic understanding of authentication is required.",
            "bearer of good news, basic arithmetic and digest of the week",
            "The API key was missing. Add an API key in the settings.",
            "Error: invalid token at position 17, expected ']'",
            "SyntaxError: Unexpected token < in JSON at position 0",
            "my password is wrong again and the login is broken",
            "Each access token counts against the limit: tokens per minute 90000",
            "key: value pairs, secret: yes or no, token: see below",
            "Password policy: minimum length 14, history 24, lockout after 5 attempts",
            "authorization: required. Authentication: optional",
            "# Secrets management\n\n- Vault: central\n- Rotation: monthly\n",
            "Lorem ipsum dolor sit amet, token consectetur password adipiscing secret elit.",
            "The credentials were rejected by the server (401 Unauthorized).",
            "auth: failed, session: closed, cookie: missing",
            "Passkey: supported since version 3",
            "| Setting | Meaning |\n|---|---|\n| token | The token of the server |\n| secret | Where it is kept |",
            "Set `token` to the value that the console shows.",
            "Private-key encryption is older than public-key encryption.",
            "Das Passwort: muss geändert werden",
            "https://example.net/docs/authentication/token-exchange#access-token",
            "https://example.net/reset-password?lang=en&theme=dark",
            "https://example.net/search?q=api+key+rotation&page=2",
            "see /etc/ssl/private/server.key and ~/.ssh/id_ed25519.pub",
            "mail me at ada@example.net or ssh ada@host.example.net",
            "pre-shared-key mode is disabled; signature algorithm RS256",
        ],
    )
    yield (
        "identifier",
        [
            "next_page_token: null",
            json.dumps({"nextCursor": "eyJwYWdlIjoyfQ==", "hasMore": True}),
            json.dumps({"primary_key": "customer_id", "foreign_key": "order_id", "sort_key": "created_at"}),
            "key: user-settings-v2\nvalue: enabled\n",
            json.dumps({"key": "ENG-1234", "fields": {"summary": "Rotate keys"}}),
            "partition_key = tenant_id",
            "keyboard: qwerty, keynote: Monday, monkey: yes",
            "com.example.service.TokenRefreshHandlerFactoryBean",
            "AbstractAuthenticationProcessingFilterConfigurer",
            "tests/auth/test_password_reset_token_generation.py::test_it_expires",
            "s3://acme-backup-2026/db/dump-20260304T102211Z.sql.gz",
            "/nix/store/0c1fz9w6d8wkl5m2qb3hgk3v4s5x7y8a-python3-3.12.8/bin/python",
            "npm-debug.log, hf_hub_download, sk_buff, key-value-store, ghp_token_name",
            "xoxo-team-lunch, pk_orders, sk-learn, SG.Name, glpat-docs",
            "pk_live_" + draw.chars(ALNUM, 24),
            "AIza is how Google's keys begin, AKIA is how Amazon's do",
            'class="btn btn-primary key-12 s.container hvs.small"',
            "d41d8cd98f00b204e9800998ecf8427e",
            "sha:" + draw.chars(HEX, 40),
            "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG",
            "0x742d35Cc6634C0532925a3b844Bc454e4438f44e",
        ],
    )


def benign_samples() -> list[BenignSample]:
    """All of them, in the order of the file."""
    return [BenignSample(name, text) for name, texts in _by_format(Draw("benign")) for text in texts]
