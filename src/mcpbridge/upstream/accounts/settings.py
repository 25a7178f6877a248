"""The `accounts` section: how the accounts of single users are kept, and where people connect them."""

from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mcpbridge.base.units import Seconds


class AccountsSettings(BaseModel):
    """The `accounts` section: the accounts of single users at servers with `auth.as = "user"`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    key: str | None = Field(default=None, min_length=16, repr=False)
    """The secret that the accounts are encrypted with (AES-256-GCM), such as `${cmd:kms decrypt …}`, `${keyring:NAME}`
    or `${file:/run/secrets/accounts}`: 32 bytes as hex or base64 are best (`openssl rand -base64 32`). Default: a key
    of the bridge's own, in the system's keyring or, without one, in a file that only its user can read. With it,
    bridges that share a store of kind `redis` share the accounts."""

    old_keys: list[str] = Field(default=[], repr=False)
    """Keys of earlier, which still open what they encrypted. `mcpbridge connections rotate` encrypts all with `key`."""

    url: str | None = None
    """The address of the bridge as browsers reach it, such as `https://bridge.example.com`: links to its pages begin
    with it, and providers send people back there. Default: where the bridge listens."""

    sign_in_lifetime: Seconds = Field(default=12 * 3600, gt=0)
    """Seconds that a browser stays signed in to the page `/connections`."""

    @field_validator("url")
    @classmethod
    def _origin(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if parts.scheme not in ("https", "http") or (parts.scheme == "http" and not is_local) or not parts.hostname:
            raise ValueError("expected an https address such as https://bridge.example.com")
        if parts.query or parts.fragment or parts.username:
            raise ValueError("an address without user, query and fragment is expected")
        return value.rstrip("/")
