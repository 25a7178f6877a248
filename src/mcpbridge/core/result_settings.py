"""What can be set about large results, and the defaults: the `[results]` section and `results` of a server or a tool.

`core/settings_precedence.py` decides which level wins; `results/` does what is set here.
"""

from typing import Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from mcpbridge.base.units import Bytes, Seconds

Strategy = Literal["preview", "truncate", "summarize", "off"]
"""What becomes of a result that is too large: a lossless rewriting or statistics, its beginning, a model's words about
it, or nothing."""

BUDGET, THRESHOLD, ITEMS = 2000, 4000, 3
"""Characters of a rewritten result; characters up to which none is rewritten; rows that are shown of a list."""
MEDIA_LIMIT = 128 * 1024
"""Bytes of an image, a sound or a blob, as sent (base64)."""


class ResultSettings(BaseModel):
    """What becomes of large results; for all, for a server or for a tool. Left out, the next level decides."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    strategy: Strategy | None = None
    """`preview` (default): as much as fits without loss, else statistics; `truncate`: the beginning; `summarize`: a
    model's summary; `off`: results pass as they came."""

    budget: int | None = Field(
        default=None, ge=400, le=1_000_000, validation_alias=AliasChoices("budget", "max_chars", "maxChars")
    )
    """Characters of what is shown in place of a large result. Default: 2000. Also `max_chars`."""

    threshold: int | None = Field(default=None, ge=0)
    """Characters up to which a result passes as it came. Default: 4000, or `budget` if that is more."""

    preview_items: int | None = Field(
        default=None, ge=0, le=1000, validation_alias=AliasChoices("preview_items", "previewItems")
    )
    """Rows of a list that a preview shows whole, where they fit. Default: 3."""

    auto_store: bool | None = Field(default=None, validation_alias=AliasChoices("auto_store", "autoStore"))
    """Whether the original of a rewritten result is kept, for `recall`. Default: yes."""

    code_transform: bool | None = Field(default=None, validation_alias=AliasChoices("code_transform", "codeTransform"))
    """Whether calls may bring `_transform`, a JavaScript expression over their result. Default: yes."""

    media_limit: Bytes | None = Field(default=None, ge=0)
    """Bytes of an image, a sound or another blob as sent, up to which it passes; a larger one becomes a link to the
    kept original. Default: 128 KiB."""

    image_side: int | None = Field(default=None, ge=0)
    """Pixels of the longer side that a larger image is scaled down to instead, if the extra `images` is installed.
    0 (default): it becomes a link."""


class SummarySettings(BaseModel):
    """Who writes the summaries of `strategy = "summarize"`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: Literal["client", "openai", "anthropic"] = "client"
    """`client`: the client's own model, through sampling; `openai`, `anthropic`: a service that speaks that API."""

    url: str | None = None
    """Base address of the service. Left out: the provider's own."""

    model: str | None = None
    """The model's name, as the service knows it. Needed with `openai` and `anthropic`."""

    api_key: str | None = None
    """The service's key, such as `${OPENAI_API_KEY}`."""

    timeout: Seconds = Field(default=60, gt=0)
    """Seconds that a summary may take; then the beginning of the result is shown instead."""

    max_input: int = Field(default=200_000, ge=1000)
    """Characters of a result that are given to the model; of a longer one the beginning and the end."""

    @model_validator(mode="after")
    def _names_a_model(self) -> Self:
        if self.provider != "client" and not self.model:
            raise ValueError(f'`provider = "{self.provider}"` needs `model`, the name of one of its models')
        return self


class ResultDefaults(ResultSettings, BaseModel):
    """The `results` section: what becomes of large results, and how long the originals are kept."""

    lifetime: Seconds = Field(default=7 * 86400, gt=0)
    """Seconds that a kept result can be recalled after its last use."""

    max_bytes: Bytes = Field(default=512 * 1024**2, ge=1024**2)
    """Bytes of all kept results together, compressed; beyond that those not used for longest go first."""

    summary: SummarySettings = SummarySettings()
    """Who writes summaries."""

    tokenizer: Literal["estimate", "o200k"] = "estimate"
    """How tokens are counted in what is told of savings: `estimate` from the text; `o200k`: with that vocabulary, if
    the extra `tokens` is installed."""
