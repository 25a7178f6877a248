"""Texts with a secret in them, by the format of the secret; none was ever issued by anybody.

The values are drawn from a seeded generator, so that no file of the repository holds one and each run has the same.
"""

import base64
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from string import ascii_letters, ascii_uppercase, digits

ALNUM = ascii_letters + digits
URL_SAFE = ALNUM + "-_"
BASE32 = ascii_uppercase + "234567"
HEX = digits + "abcdef"


@dataclass(frozen=True, slots=True)
class SecretSample:
    """A text, and what of it nobody may see."""

    format: str
    text: str
    secret: str


class Draw:
    """Values from a generator that the name of the format seeds."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def chars(self, alphabet: str, length: int) -> str:
        """A text of that length, with a digit and a letter where the alphabet has both."""
        while True:
            text = "".join(self._random.choice(alphabet) for _ in range(length))
            if not any(c in digits for c in alphabet) or (any(c in digits for c in text) and not text.isdigit()):
                return text

    def number(self, length: int) -> str:
        """A decimal number of that many digits."""
        return str(self._random.randrange(10 ** (length - 1), 10**length))

    def base64(self, size: int) -> str:
        """That many bytes in base64."""
        return base64.b64encode(self._random.randbytes(size)).decode()

    def base64url(self, size: int) -> str:
        """That many bytes in the base64 of URLs, without padding."""
        return base64.urlsafe_b64encode(self._random.randbytes(size)).decode().rstrip("=")

    def uuid(self) -> str:
        """A random UUID."""
        text = self._random.randbytes(16).hex()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


Context = Callable[[str], str]

IN_PROSE: list[Context] = [
    lambda s: f"I rotated it yesterday, the new one is {s} and works on staging.",
    lambda s: f"{s}",
    lambda s: f"2026-03-04T10:22:11Z ERROR client refused {s} (attempt 3)",
    lambda s: f"| deploy bot | {s} | active |",
]
"""Nothing but the format says what it is."""


def named(name: str) -> list[Context]:
    """A name says what it is, in the files and messages where names stand."""
    upper, camel = name.upper(), name.split("_")[0] + "".join(part.title() for part in name.split("_")[1:])
    return [
        lambda s: f"# production\nDEBUG=false\n{upper}={s}\nPORT=8080\n",
        lambda s: json.dumps({"region": "eu-west-1", camel: s, "retries": 3}),
        lambda s: f"service:\n  host: api.internal\n  {name}: {s}\n  timeout: 30\n",
        lambda s: f"export {upper}='{s}'\n./run.sh --verbose\n",
        lambda s: f'[client]\n{name} = "{s}"\nverify = true\n',
    ]


def in_url(name: str) -> list[Context]:
    """As a parameter of a request."""
    return [lambda s: f"GET https://api.example.net/v2/items?page=2&{name}={s}&sort=asc HTTP/1.1"]


def in_header(name: str) -> list[Context]:
    """In a header, as programs print and people type it."""
    return [lambda s: f"> {name}: {s}\n> Accept: */*", lambda s: f'curl -H "{name}: {s}" https://api.example.net/me']


def _single(draw: Draw) -> Iterator[tuple[str, list[tuple[str, list[Context]]]]]:
    """Each format, with values and where they stand."""
    c, prose = draw.chars, IN_PROSE
    yield "aws-key-id", [("AKIA" + c(BASE32, 16), prose[:3]), ("ASIA" + c(BASE32, 16), named("aws_access_key_id")[:2])]
    yield "aws-secret", [(draw.base64(30), named("aws_secret_access_key"))]
    yield (
        "github-classic",
        [
            ("ghp_" + c(ALNUM, 36), prose),
            ("gho_" + c(ALNUM, 36), prose[:1]),
            ("ghs_" + c(ALNUM, 36), [lambda s: f"git clone https://x-access-token:{s}@github.com/acme/site.git"]),
        ],
    )
    yield "github-fine", [("github_pat_" + c(ALNUM, 22) + "_" + c(ALNUM, 59), prose[:3])]
    yield (
        "gitlab",
        [
            ("glpat-" + c(URL_SAFE, 20), prose),
            ("gldt-" + c(ALNUM, 20), prose[:1]),
            ("glrt-" + c(ALNUM, 20), prose[2:3]),
        ],
    )
    bot = f"xoxb-{draw.number(12)}-{draw.number(12)}-{c(ALNUM, 24)}"
    user = f"xoxp-{draw.number(12)}-{draw.number(12)}-{draw.number(13)}-{c(HEX, 32)}"
    app = f"xapp-1-A{c(BASE32, 10)}-{draw.number(13)}-{c(HEX, 64)}"
    yield "slack-token", [(bot, prose[:3]), (user, prose[:2]), (app, prose[:1])]
    yield (
        "slack-webhook",
        [
            (c(ALNUM, 24), [lambda s: f"Post to https://hooks.slack.com/services/T02AB3CD4/B05EF6GH7/{s} when done."]),
            (
                c(ALNUM, 24),
                [lambda s: json.dumps({"url": f"https://hooks.slack.com/services/T0ZYXWVU9/B0TSRQPO8/{s}"})],
            ),
        ],
    )
    yield (
        "stripe",
        [
            ("sk_live_" + c(ALNUM, 24), prose[:3]),
            ("sk_test_" + c(ALNUM, 99), prose[:2]),
            ("rk_live_" + c(ALNUM, 24), prose[:1]),
            ("whsec_" + c(ALNUM, 32), prose[:2]),
        ],
    )
    yield "google-api", [("AIza" + c(URL_SAFE, 34) + "4", prose[:3] + in_url("key"))]
    yield (
        "google-oauth",
        [
            ("GOCSPX-" + c(URL_SAFE, 27) + "9", prose[:2] + named("client_secret")[1:2]),
            ("ya29.a0" + c(URL_SAFE, 120), prose[:1]),
        ],
    )
    yield (
        "azure-storage",
        [
            (
                draw.base64(64),
                [
                    lambda s: (
                        f"DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={s};EndpointSuffix=core.windows.net"
                    ),
                    lambda s: f"AZURE_STORAGE_KEY={s}",
                    lambda s: json.dumps({"accountName": "acmelogs", "accountKey": s}),
                ],
            ),
        ],
    )
    yield (
        "azure-sas",
        [
            (
                draw.base64(32).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
                [
                    lambda s: (
                        f"https://acmelogs.blob.core.windows.net/backup/a.tar?sv=2024-11-04&se=2027-01-01&sr=b&sp=r&sig={s}"
                    ),
                    lambda s: (
                        f"blob: https://x9.blob.core.windows.net/c?sp=racwdl&st=2026-01-01T00:00:00Z&sig={s}&sv=2022-11-02"
                    ),
                ],
            ),
        ],
    )
    yield (
        "azure-bus",
        [
            (
                draw.base64(32),
                [
                    lambda s: (
                        f"Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={s}"
                    ),
                    lambda s: f"HostName=hub.azure-devices.net;DeviceId=d1;SharedAccessKey={s}",
                ],
            ),
            (
                c(ALNUM, 18),
                [lambda s: f"Server=tcp:acme.database.windows.net,1433;User ID=app;Password={s};Encrypt=True;"],
            ),
        ],
    )
    yield (
        "azure-ad",
        [(c(ALNUM, 3) + "8Q~" + c(ALNUM + "._~-", 33) + "7", prose[:2] + named("azure_client_secret")[:3])],
    )
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(b'{"sub":"4711","name":"Ada","iat":1770000000}').decode().rstrip("=")
    yield "jwt", [(f"{head}.{body}.{draw.base64url(32)}", prose), (f"{head}.{body}.{draw.base64url(64)}", in_url("t"))]
    for which in ("RSA ", "EC ", "", "OPENSSH ", "ENCRYPTED ", "DSA "):
        kind = f"{which}PRIVATE KEY"
        lines = "\n".join(draw.base64(48) for _ in range(8))
        yield (
            "private-key",
            [
                (
                    lines,
                    [lambda s, kind=kind: f"key.pem:\n-----BEGIN {kind}-----\n{s}\n-----END {kind}-----\nend of file"],
                ),
            ],
        )
    one = "\\n".join(draw.base64(48) for _ in range(6))
    yield (
        "private-key",
        [
            (one, [lambda s: f'{{"private_key": "-----BEGIN PRIVATE KEY-----\\n{s}\\n-----END PRIVATE KEY-----\\n"}}']),
            (
                draw.base64(90),
                [lambda s: f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{s}\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----"],
            ),
            (
                "\n".join(draw.base64(48) for _ in range(3)),
                [lambda s: f"PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 3\n{s}\nPrivate-MAC: 00"],
            ),
            ("AGE-SECRET-KEY-1" + c("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58), prose[:2]),
        ],
    )
    yield "npm", [("npm_" + c(ALNUM, 36), [*prose[:2], lambda s: f"//registry.npmjs.org/:_authToken={s}"])]
    yield "npm", [(draw.base64(24), [lambda s: f"registry=https://npm.acme.example/\n_auth={s}\nalways-auth=true"])]
    yield (
        "pypi",
        [
            (
                "pypi-AgEIcHlwaS5vcmc" + c(URL_SAFE, 140),
                [*prose[:2], lambda s: f"[pypi]\nusername = __token__\npassword = {s}"],
            )
        ],
    )
    yield (
        "docker-hub",
        [
            ("dckr_pat_" + c(URL_SAFE, 26) + "5", [*prose[:3], lambda s: f"docker login -u acme -p {s}"]),
            (draw.base64(30), [lambda s: json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": s}}})]),
        ],
    )
    yield "sendgrid", [(f"SG.{c(URL_SAFE, 21)}3.{c(URL_SAFE, 42)}4", prose[:3])]
    yield (
        "twilio",
        [
            (c(HEX, 32), named("twilio_auth_token")[:3]),
            (
                c(HEX, 32),
                [
                    lambda s: (
                        f"curl -u AC0123456789abcdef0123456789abcdef:{s} https://api.twilio.com/2010-04-01/Accounts"
                    )
                ],
            ),
            ("SK" + c(HEX, 32), named("twilio_api_key")[:2]),
        ],
    )
    yield (
        "telegram-bot",
        [
            (draw.number(10) + ":AA" + c(URL_SAFE, 32) + "2", prose[:3]),
            (
                draw.number(10) + ":AA" + c(URL_SAFE, 32) + "2",
                [lambda s: f"POST https://api.telegram.org/bot{s}/sendMessage"],
            ),
        ],
    )
    discord = base64.b64encode(draw.number(18).encode()).decode() + "." + c(URL_SAFE, 5) + "9." + c(URL_SAFE, 37) + "8"
    yield (
        "discord",
        [
            (discord, prose[:2] + named("discord_token")[:1]),
            (c(URL_SAFE, 67) + "3", [lambda s: f"hook: https://discord.com/api/webhooks/112233445566778899/{s}"]),
        ],
    )
    yield (
        "openai",
        [
            (f"sk-{c(ALNUM, 20)}T3BlbkFJ{c(ALNUM, 20)}", prose[:3]),
            (f"sk-proj-{c(URL_SAFE, 60)}T3BlbkFJ{c(URL_SAFE, 60)}", prose[:2]),
        ],
    )
    yield "anthropic", [(f"sk-ant-api03-{c(URL_SAFE, 92)}2AA", prose[:3] + in_header("x-api-key"))]
    yield "huggingface", [("hf_" + c(ascii_letters, 34), prose[:3])]
    yield "digitalocean", [("dop_v1_" + c(HEX, 64), prose[:2]), ("doo_v1_" + c(HEX, 64), prose[:1])]
    yield "heroku", [(draw.uuid(), named("heroku_api_key")[:4]), ("HRKU-AA" + c(URL_SAFE, 58), prose[:1])]
    yield (
        "shopify",
        [("shpat_" + c(HEX, 32), prose[:2]), ("shpss_" + c(HEX, 32), prose[:1]), ("shpca_" + c(HEX, 32), prose[2:3])],
    )
    yield "square", [("EAAA" + c(URL_SAFE, 60), prose[:2]), ("sq0csp-" + c(URL_SAFE, 43), prose[:2])]
    yield (
        "mailgun",
        [("key-" + c(HEX, 32), prose[:2]), (f"{c(HEX, 32)}-{c(HEX, 8)}-{c(HEX, 8)}", named("mailgun_api_key")[:2])],
    )
    yield (
        "datadog",
        [(c(HEX, 32), named("dd_api_key")[:3] + in_header("DD-API-KEY")), (c(HEX, 40), named("dd_app_key")[:2])],
    )
    yield (
        "new-relic",
        [
            ("NRAK-" + c(ascii_uppercase + digits, 27), prose[:2]),
            (c(HEX, 36) + "NRAL", prose[:2] + named("new_relic_license_key")[:2]),
        ],
    )
    yield (
        "vault",
        [
            ("hvs." + c(URL_SAFE, 91) + "6", prose[:2]),
            ("s." + c(ALNUM, 24), named("vault_token")[:2] + in_header("X-Vault-Token")),
        ],
    )
    yield (
        "terraform",
        [
            (
                f"{c(ALNUM, 14)}.atlasv1.{c(URL_SAFE, 66)}",
                [*prose[:2], lambda s: f'credentials "app.terraform.io" {{\n  token = "{s}"\n}}'],
            )
        ],
    )
    yield (
        "cloud-others",
        [
            ("dp.st.prd." + c(ALNUM, 43), prose[:1]),
            ("lin_api_" + c(ALNUM, 40), prose[:1]),
            ("secret_" + c(ALNUM, 43), named("notion_token")[:1]),
            ("ntn_" + draw.number(11) + c(ALNUM, 35), prose[:1]),
            ("PMAK-" + c(HEX, 24) + "-" + c(HEX, 34), prose[:1]),
            ("glsa_" + c(ALNUM, 32) + "_" + c(HEX, 8), prose[:1]),
            ("sntrys_" + draw.base64url(80), prose[:1]),
            ("phc_" + c(ALNUM, 43), named("posthog_api_key")[:1]),
            ("tskey-auth-" + c(ALNUM, 12) + "CNTRL-" + c(ALNUM, 32), prose[:1]),
            ("rubygems_" + c(HEX, 48), prose[:1]),
            ("figd_" + c(URL_SAFE, 40), prose[:1]),
            ("pat" + c(ALNUM, 14) + "." + c(HEX, 64), prose[:1]),
            ("gsk_" + c(ALNUM, 52), prose[:1]),
            ("r8_" + c(ALNUM, 37), prose[:1]),
            ("dapi" + c(HEX, 32), prose[:1]),
            ("ATATT3xFfGF0" + c(URL_SAFE, 170) + "=" + c(HEX.upper(), 8), prose[:1]),
            ("sbp_" + c(HEX, 40), prose[:1]),
            ("pscale_pw_" + c(URL_SAFE, 43), prose[:1]),
        ],
    )
    word = c(ALNUM, 16)
    yield (
        "database-url",
        [
            (
                word,
                [
                    lambda s: f"DATABASE_URL=postgres://app:{s}@db.internal:5432/shop?sslmode=require",
                    lambda s: f"could not connect to mysql://root:{s}@10.0.3.7/orders",
                    lambda s: json.dumps({"uri": f"mongodb+srv://svc:{s}@cluster0.ab1cd.mongodb.net/test"}),
                    lambda s: f"broker = redis://:{s}@cache:6379/0",
                    lambda s: f"amqp://worker:{s}@rabbit:5672/%2F",
                    lambda s: f"jdbc:postgresql://db/shop?user=app&password={s}",
                    lambda s: f"host=db port=5432 user=app password={s} dbname=shop",
                ],
            ),
            ("correct-horse-7", [lambda s: f"postgresql+asyncpg://ada:{s}@db/shop"]),
        ],
    )
    basic = base64.b64encode(b"ada:" + draw.chars(ALNUM, 14).encode()).decode()
    yield (
        "auth-header",
        [
            (
                basic,
                [
                    lambda s: f"Authorization: Basic {s}",
                    lambda s: json.dumps({"headers": {"authorization": f"Basic {s}"}}),
                ],
            ),
            (
                c(ALNUM, 40),
                [
                    lambda s: f"Authorization: Bearer {s}",
                    lambda s: f"curl -H 'Authorization: Bearer {s}' localhost",
                    lambda s: f"proxy-authorization: Token {s}",
                    lambda s: f"the header was `Bearer {s}`",
                ],
            ),
            (
                c(HEX, 32),
                [
                    lambda s: f"Cookie: theme=dark; sessionid={s}; lang=en",
                    lambda s: f"Set-Cookie: connect.sid={s}; Path=/; HttpOnly",
                ],
            ),
        ],
    )
    yield (
        "password",
        [
            (
                "Tr0ub4dor&3",
                [
                    lambda s: f"password: {s}",
                    lambda s: json.dumps({"username": "ada", "password": s}),
                    lambda s: f"mysql -u root -p{s} shop",
                    lambda s: f"sshpass -p '{s}' ssh ada@host",
                    lambda s: f"<user>ada</user><password>{s}</password>",
                ],
            ),
            ("S0mmer-2026!", named("db_password") + named("smtp_pass")[:2]),
            (
                c(ALNUM, 20),
                [
                    lambda s: f"machine api.example.net\n  login ada\n  password {s}\n",
                    lambda s: f"machine git.example.net login ada password {s}",
                    lambda s: f"curl -u ada:{s} https://example.net",
                ],
            ),
        ],
    )
    yield (
        "own-key",
        [
            (c(ALNUM, 32), named("api_key") + in_url("api_key") + in_header("X-Api-Key")),
            (c(HEX, 64), named("signing_secret")[:3]),
            (draw.base64(32), named("encryption_key")[:3]),
            (draw.base64(40), [lambda s: f"apiVersion: v1\nkind: Secret\ndata:\n  tls.key: {s}\n"]),
            (
                c(ALNUM, 26),
                [
                    lambda s: f"-  client_secret: {s}\n+  client_secret: ${{SECRET}}",
                    lambda s: f"const apiKey = '{s}';",
                    lambda s: f'os.environ["SERVICE_TOKEN"] = "{s}"',
                    lambda s: f"--token={s}",
                    lambda s: f"app --api-key {s} --port 80",
                ],
            ),
        ],
    )


def secret_samples() -> list[SecretSample]:
    """All of them, in the order of the file."""
    return [
        SecretSample(name, context(secret), secret)
        for name, values in _single(Draw("secrets"))
        for secret, contexts in values
        for context in contexts
    ]
