"""What can be set about large results, and the defaults: the `[results]` section and `results` of a server or a tool.

`core/settings_precedence.py` decides which level wins; `results/` does what is set here.
"""

from typing import Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from mcpbridge.base.units import Bytes, Seconds

Strategy = Literal["preview", "truncate", "summarize", "off"]
"""What becomes of a result that is too large: a lossless rewriting or statistics, its beginning, a model's words about
it, or nothing."""
HiddenCharacters = Literal["keep", "show"]
"""What becomes of characters of a result that a person does not see."""

BUDGET, THRESHOLD, ITEMS = 2000, 4000, 3
"""Characters of a rewritten result; characters up to which none is rewritten; rows that are shown of a list."""
MEDIA_LIMIT = 128 * 1024
"""Bytes of an image, a sound or a blob, as sent (base64)."""


class ResultSettings(BaseModel):
    """How large results are shortened: for all, for a server or for a tool.

    A key that is left out takes its value from the next level.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, populate_by_name=True)

    strategy: Strategy | None = None
    """`preview` (default): everything that fits without loss, otherwise statistics and samples. `truncate`: the
    beginning. `summarize`: a summary by a model. `off`: results pass unchanged."""

    budget: int | None = Field(
        default=None, ge=400, le=1_000_000, validation_alias=AliasChoices("budget", "max_chars", "maxChars")
    )
    """Characters of the text that replaces a large result. Default: 2000. Also `max_chars`."""

    threshold: int | None = Field(default=None, ge=0)
    """Characters up to which a result passes unchanged. Default: 4000, or `budget` if that is more."""

    preview_items: int | None = Field(
        default=None, ge=0, le=1000, validation_alias=AliasChoices("preview_items", "previewItems")
    )
    """Rows of a list that a preview shows in full, if they fit. Default: 3."""

    auto_store: bool | None = Field(default=None, validation_alias=AliasChoices("auto_store", "autoStore"))
    """Whether the original of a shortened result is kept for `recall`. Default: yes."""

    code_transform: bool | None = Field(default=None, validation_alias=AliasChoices("code_transform", "codeTransform"))
    """Whether a call may carry `_transform`, a JavaScript expression that is applied to its result. Default: yes."""

    media_limit: Bytes | None = Field(default=None, ge=0)
    """Bytes, as sent, up to which an image, a sound or another blob passes. A larger one becomes a link to the kept
    original. Default: 128 KiB."""

    image_side: int | None = Field(default=None, ge=0)
    """Pixels of the longer side to which a larger image is scaled down instead. Needs the extra `images`. Default: 0,
    the image becomes a link."""

    hidden_characters: HiddenCharacters | None = Field(
        default=None, validation_alias=AliasChoices("hidden_characters", "hiddenCharacters")
    )
    """What happens to characters that a person does not see: zero-width, bidi, tags, terminal escapes, controls.
    `keep` (default): they pass. `show`: each becomes visible, such as `‹U+200B›`, and the original is kept."""


class SummarySettings(BaseModel):
    """Who writes the summaries of `strategy = "summarize"`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    provider: Literal["client", "openai", "anthropic"] = "client"
    """Who writes the summary. `client`: the model of the client, through sampling. `openai`, `anthropic`: a service
    with that API."""

    url: str | None = None
    """The base address of the service. Default: that of the provider."""

    model: str | None = None
    """The name of the model. Required with `openai` and `anthropic`."""

    api_key: str | None = None
    """The key of the service, such as `${OPENAI_API_KEY}`."""

    timeout: Seconds = Field(default=60, gt=0)
    """Seconds to wait for a summary. After that the beginning of the result is shown."""

    max_input: int = Field(default=200_000, ge=1000)
    """Characters of a result that the model receives. Of a longer result it receives the beginning and the end."""

    @model_validator(mode="after")
    def _names_a_model(self) -> Self:
        if self.provider != "client" and not self.model:
            raise ValueError(f'`provider = "{self.provider}"` needs `model`, the name of one of its models')
        return self


class ResultDefaults(ResultSettings, BaseModel):
    """The `results` section: how large results are shortened, and how long the originals are kept."""

    lifetime: Seconds = Field(default=7 * 86400, gt=0)
    """Seconds after its last use for which a kept result can be recalled."""

    max_bytes: Bytes = Field(default=512 * 1024**2, ge=1024**2)
    """Bytes of all kept results together, compressed. Above that, the least recently used are deleted first."""

    summary: SummarySettings = SummarySettings.model_construct()
    """Who writes the summaries."""

    tokenizer: Literal["estimate", "o200k"] = "estimate"
    """How the reported token counts are made. `estimate`: estimated from the text. `o200k`: counted with that
    vocabulary; needs the extra `tokens`."""
