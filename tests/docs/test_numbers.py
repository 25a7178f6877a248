"""Numbers and words that the pages repeat are those of the code."""

from pathlib import Path

import pytest

from mcpbridge.app import exit_codes as exits
from mcpbridge.app.client_config import entry as entries
from mcpbridge.app.client_config.clients import CLIENTS as KNOWN_CLIENTS
from mcpbridge.app.daemon import log_rotation
from mcpbridge.app.daemon import socket_server as front
from mcpbridge.app.doctor.known_failures import KNOWN
from mcpbridge.app.stdio_proxy import crash_limit as crashes
from mcpbridge.base import errors
from mcpbridge.base.masking.known_values import MIN_LENGTH
from mcpbridge.base.process import environment, memory_limit, process
from mcpbridge.base.process import orphan_reaper_main as guard
from mcpbridge.base.units import show_bytes
from mcpbridge.catalog import upstream_filter
from mcpbridge.catalog.definitions import check as definitions
from mcpbridge.catalog.listing import catalog_summary as catalog_map
from mcpbridge.catalog.listing import query_hint as request
from mcpbridge.catalog.listing import tool_lists as exposing
from mcpbridge.catalog.listing.client_quirks import TRAITS
from mcpbridge.catalog.search import (
    answers,
)
from mcpbridge.catalog.search import (
    llm_router as model_router,
)
from mcpbridge.catalog.search import (
    llm_router as model_router_prompt,
)
from mcpbridge.catalog.search import (
    usage_feedback as feedback,
)
from mcpbridge.catalog.search import (
    weights as search_weights,
)
from mcpbridge.catalog.search.embeddings import embedder as embedding
from mcpbridge.catalog.search.embeddings import embedder as embedding_cache
from mcpbridge.catalog.settings import AUTO_TOKENS
from mcpbridge.catalog.slim.levels import DESCRIPTION_LENGTH, SLIM
from mcpbridge.config.needs_restart import NEEDS_RESTART
from mcpbridge.config.schema import Settings
from mcpbridge.core.call_settings import CALL_SECONDS, LOCAL_SECONDS
from mcpbridge.core.result_settings import BUDGET, ITEMS, MEDIA_LIMIT, THRESHOLD
from mcpbridge.downstream import conversation
from mcpbridge.downstream import progress as updates
from mcpbridge.downstream.elicitation import ask as asking
from mcpbridge.downstream.elicitation import parked_calls
from mcpbridge.downstream.http import event_streams as http_streams
from mcpbridge.downstream.http import server as http
from mcpbridge.downstream.requests import session_tools as extra_tools
from mcpbridge.downstream.tasks import session_tasks
from mcpbridge.engine.wiring import search as routing_parts
from mcpbridge.pipeline import compress_result as aside
from mcpbridge.pipeline import compress_result as rewriting
from mcpbridge.pipeline import input_required as driving
from mcpbridge.pipeline.hooks import runners as programs
from mcpbridge.pipeline.permissions import conditions
from mcpbridge.pipeline.stages import abandoned_calls as late
from mcpbridge.pipeline.stages import compress as large_tools
from mcpbridge.pipeline.stages import references
from mcpbridge.pipeline.stages import retry as backoff
from mcpbridge.pipeline.validation import schema_paths as showing
from mcpbridge.protocol.revisions import REVISIONS
from mcpbridge.results import kept_results as shelf
from mcpbridge.results.preview import limits as preview_limits
from mcpbridge.results.query import limits as query_limits
from mcpbridge.sandbox.isolation import choose_tier
from mcpbridge.sandbox.isolation import supervisor as tree
from mcpbridge.sandbox.javascript import limits as javascript
from mcpbridge.sandbox.python import program
from mcpbridge.sandbox.python import program as program_run
from mcpbridge.sandbox.settings import PROPERTIES
from mcpbridge.storage.store import MAX_DAYS
from mcpbridge.tools.agent import local_agent
from mcpbridge.tools.builtin.base_settings import NAMES
from mcpbridge.tools.builtin.files import file_read
from mcpbridge.tools.builtin.meta import describe_tools
from mcpbridge.tools.builtin.recall import arguments as recall_arguments
from mcpbridge.tools.builtin.recall import offload as recall_apart
from mcpbridge.tools.builtin.settings import BuiltinSettings
from mcpbridge.tools.builtin.web import crypto_price
from mcpbridge.tools.builtin.web import crypto_price as coins
from mcpbridge.tools.http.settings import HttpToolSettings
from mcpbridge.tools.openapi import backend as openapi
from mcpbridge.upstream import manifest
from mcpbridge.upstream.auth import settings as auth
from mcpbridge.upstream.concurrency import LearnedSlots
from mcpbridge.upstream.connection import backoff as lifecycle
from mcpbridge.upstream.connection import idle_stop as repose
from mcpbridge.upstream.instances import chooser as choosing
from mcpbridge.upstream.session import (
    elicitation as questions,
)
from mcpbridge.upstream.session import (
    keepalive as tending,
)
from mcpbridge.upstream.session import (
    listings as attribution,
)
from mcpbridge.upstream.session import (
    negotiation as era,
)
from mcpbridge.upstream.session import (
    session,
)
from mcpbridge.upstream.session import (
    subscriptions as wanted,
)
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports import sandboxed_stdio as sandboxed
from mcpbridge.upstream.transports import stdio as wire_stdio

ROOT = Path(__file__).parent.parent.parent
SERVER = ServerSettings(command="x")
HTTP = Settings().http
ASKING = Settings().questions
CALLS = Settings().calls
APPROVAL = Settings().approval
CACHE = Settings().cache
CALL_LOG = Settings().call_log
OBSERVE = Settings().observe
RESULTS = Settings().results
SEARCH = Settings().search
ROUTER = Settings().router
CODE = Settings().code
TOOL = HttpToolSettings(endpoint="https://example.com")
BUILTIN = BuiltinSettings()
SANDBOX = Settings().sandbox
DAEMON = Settings().daemon
CLIENTS = {traits.names[0]: traits for traits in TRAITS}
VS_CODE = CLIENTS["visual studio code*"]

SAID = {
    "README.md": [*REVISIONS[:1], *REVISIONS[-1:], f"{len(KNOWN_CLIENTS)} clients"],
    "docs/reference/matrix.md": [*REVISIONS],
    "docs/reference/limits.md": [
        f"| largest message, either way | {show_bytes(Settings().limits.max_frame)} |",
        f"| largest HTTP request of a client | {show_bytes(HTTP.max_body)} |",
        f"says so | {show_bytes(HTTP.max_event)} | `http.max_event` |",
        f"| calls of one model turn at a time | {CALLS.batch} | `calls.batch` |",
        f"| {APPROVAL.timeout / 60:g} min | `approval.timeout` |",
        f"| {CALLS.late_lifetime / 3600:g} h | `calls.late_lifetime` |",
        f"| {show_bytes(CACHE.max_bytes)}, {show_bytes(CACHE.max_result)} | `cache.max_bytes`, `cache.max_result` |",
        f"| {THRESHOLD:,}; {BUDGET:,} | `results.threshold`, `budget` |",
        f"| {RESULTS.lifetime / 86400:g} d, {show_bytes(RESULTS.max_bytes)} | `results.lifetime`, `max_bytes` |",
        f"| {show_bytes(MEDIA_LIMIT)} | `results.media_limit` |",
        f"| a server must be ready within | {SERVER.init_timeout:g} s |",
        f"| no answer and no progress for | {SERVER.timeouts.idle:g} s |",
        f"| one call in all | {SERVER.timeouts.total / 60:g} min |",
        f"| learned: {LearnedSlots.FEWEST} to {LearnedSlots.MOST}; {SERVER.max_queued:,} |",
        f"| wait for a place there | {SERVER.queue_timeout:g} s |",
        f"| {Settings().bridge.startup_wait:g} s | `bridge.startup_wait` |",
        f"| {DAEMON.idle_exit / 60:g} min | `daemon.idle_exit` |",
        f"| {repose.IDLE_STOP / 60:g} min | `idle_stop` |",
        f"| {HTTP.max_sessions:,}, {HTTP.session_idle / 60:g} min |",
        f"| {HTTP.resume_grace:g} s | `http.resume_grace` |",
        f"| {ASKING.timeout / 60:g} min | `questions.timeout` |",
        f"| {SERVER.max_instances}, {SERVER.instance_idle / 60:g} min | `max_instances`, `instance_idle` |",
        f"| {upstream_filter.MOST:,}; {show_bytes(definitions.LARGEST)} |",
        f"by itself | {AUTO_TOKENS:,} | `expose.auto_tokens` |",
        f"| {SEARCH.limit}; {SEARCH.tokens} | `search.limit`, `search.tokens` |",
        f"| {CODE.timeout:g} s; {CODE.total_timeout / 60:g} min; {CODE.max_memory} MiB; {CODE.max_calls} |",
    ],
    "docs/explanation/promises.md": [f"at most {Settings().bridge.name_length} characters"],
    "docs/how-to/cut-the-token-bill.md": [f"more than {AUTO_TOKENS:,} tokens"],
    "docs/how-to/find-out-why-a-call-failed.md": [
        errors.UpstreamUnavailable.advice,
        str(errors.UpstreamTimeout("db", SERVER.timeouts.idle)) + ". " + errors.UpstreamTimeout.advice,
        errors.UpstreamGone.advice,
    ],
    "docs/reference/commands.md": [
        f"| {exits.USAGE} | wrong usage",
        f"| {exits.UNREACHABLE} | a server",
        f"| {exits.TOOL_ERROR} | the tool",
        f"| {exits.DECIDED} | it was answered before",
        f"| {exits.TIMED_OUT} | no answer",
        f"| {exits.INTERRUPTED} | interrupted",
        f"open HTTP requests get {http._DRAIN:g} s",
    ],
    "docs/explanation/calls.md": [
        f"values over {showing.LONGEST_VALUE} characters",
        f"at most {conditions.LONGEST} characters and two nested loops",
        f"loops over at most {conditions.MOST_VALUES} values",
        f"`approval.timeout` ({APPROVAL.timeout / 60:g} min)",
        f"`approval.grant_lifetime` ({APPROVAL.grant_lifetime / 60:g} min)",
        f"`approval.session_lifetime` ({APPROVAL.session_lifetime / 3600:g} h)",
        f"| **turn** | {CALLS.batch} of one model turn | `calls.batch` |",
        f"| **server** | {LearnedSlots.FEWEST} at first, up to {LearnedSlots.MOST} as it ",
        f"it is learned: {LearnedSlots.FEWEST} at first, up to {LearnedSlots.MOST}",
        f"`calls.max_queued` ({CALLS.max_queued}) calls",
        f"`max_queued` of the server ({SERVER.max_queued:,})",
        f"`queue_timeout` ({SERVER.queue_timeout:g} s)",
        f"`calls.chain_pause` ({CALLS.chain_pause / 60:g} min)",
        f"without an answer or progress; {SERVER.timeouts.idle:g} s by default",
        f"in all, whatever its progress; {SERVER.timeouts.total / 60:g} min by default",
        f"at most {late.MAX_LATE} calls of one user",
        f"at most {backoff.SHARE:.0%} of its calls of the last minute, and {backoff.AT_LEAST} more".replace("%", " %"),
        f"{show_bytes(CACHE.max_bytes)} (`cache.max_bytes`), {show_bytes(CACHE.max_result)} a result",
        errors.NotPermitted.advice,
    ],
    "docs/explanation/results.md": [
        f"a result of more than {THRESHOLD:,} characters is rewritten",
        f"`threshold` ({THRESHOLD:,} characters)",
        f"`budget` ({BUDGET:,})",
        f"budget = {BUDGET}",
        f"threshold = {THRESHOLD}",
        f"preview_items = {ITEMS} ",
        f"`lifetime` ({RESULTS.lifetime / 86400:g} days)",
        f"`max_bytes` ({show_bytes(RESULTS.max_bytes)}, compressed)",
        f"`media_limit` ({show_bytes(MEDIA_LIMIT)} of base64)",
        f"`max_input` characters of it ({RESULTS.summary.max_input:,})",
        f"`timeout` ({RESULTS.summary.timeout:g} s)",
        f"which result, or several ({recall_arguments.MOST})",
        f"{javascript.SECONDS:g} s of CPU time, {javascript.DEADLINE:g} s by the clock",
        f"{javascript.LARGEST_INPUT >> 20} Mi characters of input",
        f"input and {javascript.LARGEST_ANSWER >> 20} Mi of output",
        f"{references._MOST_REFERENCES:,} references a call, {references.MOST >> 20} MiB of what they stand for",
        f"{references.MOST_LOADED >> 20} MiB of results",
        f"more than {preview_limits.TABLE_VALUES:,} values",
        f"passes whole up to {rewriting._WHOLE:,} characters",
        f"at most {rewriting._MOST_SMALLER} of a result",
        f"for {query_limits.SEARCH_SECONDS:g} s at most; a pattern has at most {query_limits.PATTERN_GROUPS} groups",
        f"`search` takes {shelf._MOST_WORDS} words",
        f"up to {aside.LARGE >> 10} KB is looked at where the calls are served",
        f"({aside._THREADS} at a time). From {aside.HUGE >> 20} MB on",
        f"a process of its own ({aside._PROCESSES} at a time)",
        f"(threads from {recall_apart.SLOW >> 10} KB)",
        f"`limits.max_frame`, {show_bytes(Settings().limits.max_frame)}",
        f"in the last {large_tools._SECONDS / 86400:g} days",
        f"kept for {MAX_DAYS}",
    ],
    "CHANGELOG.md": [
        f"by {DAEMON.idle_exit / 60:g} min (`daemon.idle_exit`)",
        f"stop after {repose.IDLE_STOP / 60:g} min without use",
        f"the servers of {len(KNOWN_CLIENTS)} clients",
        f"more than {AUTO_TOKENS:,} tokens",
        f"Cursor {CLIENTS['cursor*'].max_tools}, Windsurf {CLIENTS['windsurf*'].max_tools}",
        f"VS Code {VS_CODE.max_tools})",
    ],
    "docs/explanation/routing.md": [
        f"at most {AUTO_TOKENS:,} tokens (`auto_tokens`)",
        f"Names up to {CLIENTS['claude-code'].name_length} characters",
        f"descriptions up to {CLIENTS['claude-code'].description_length:,}",
        f'`_meta["anthropic/maxResultSizeChars"]` {CLIENTS["claude-code"].result_length:,}',
        f"| Codex | names up to {CLIENTS['codex-mcp-client'].name_length} characters |",
        f"| Gemini CLI | names up to {CLIENTS['gemini-cli*'].name_length} characters |",
        f"| Cursor | {CLIENTS['cursor*'].max_tools} tools; names up to {CLIENTS['cursor*'].name_length} characters |",
        f"| VS Code | {VS_CODE.max_tools} tools; names up to {VS_CODE.name_length} characters |",
        f"| Windsurf | {CLIENTS['windsurf*'].max_tools} tools |",
        f"| Cline, Roo Code | names up to {CLIENTS['cline*'].name_length} characters |",
        f"| LibreChat | names up to {CLIENTS['@librechat*'].name_length} characters |",
        f"at most {Settings().bridge.name_length} characters anyway",
        f"at most {routing_parts._MOST_ACTIVATED} tools, the last ones",
        f"`limit` ({SEARCH.limit})",
        f"`names`, {describe_tools._MOST} at most",
        f"about {describe_tools._TOKENS:,} tokens",
        f"about {SEARCH.tokens} tokens (`search.tokens`)",
        f"in up to {answers.SCHEMA_TOKENS:,} tokens",
        f"in at most about {catalog_map.MAP_TOKENS} tokens",
        f"by `weight` ({SEARCH.embedder.weight})",
        f"`timeout` ({SEARCH.embedder.timeout:g} s)",
        f"at most {show_bytes(embedding_cache._MAX_BYTES)}",
        f"the queries ({embedding._QUERY:,} characters) and of each tool up to {embedding._TEXT:,}",
        f"rises by {search_weights.FEEDBACK:.0%} of the best at most".replace("%", " %"),
        f"{feedback._KEPT / 86400:g} days after the last one",
        f"sentences of the description up to {DESCRIPTION_LENGTH} characters; {SLIM.text} of each parameter's",
        f"{SLIM.all_texts} of all",
        f"at most `router.max_tools` ({ROUTER.max_tools})",
        f"the first {request.LONGEST:,} characters count",
        f"longer than `timeout` ({ROUTER.timeout:g} s)",
        f"not asked the same again for {model_router.AGAIN:g} s",
        f"up to {model_router_prompt.LONGEST_REQUEST:,} characters of the request",
        f"of at most `max_index` ({ROUTER.max_index}) tools",
        f"the first sentence ({model_router_prompt.LONGEST_DESCRIPTION} characters)",
        f"| computing | {CODE.timeout:g} s |",
        f"| {CODE.total_timeout:g} s | `code.total_timeout` |",
        f"| memory | {CODE.max_memory} MiB |",
        f"| calls; at a time | {CODE.max_calls}; {CODE.max_parallel} |",
        f"| {program.LIVE}, {program.LIVE_OF_ONE} |",
        f"| {program.LONGEST_PROGRAM:,}; {program_run.MOST_PRINTED >> 20} Mi; {program_run.LARGEST_RESULT >> 20} MiB |",
    ],
    "docs/explanation/architecture.md": [f"at most {exposing.MOST} are kept"],
    "docs/how-to/tools.md": [
        f"`max_concurrent` ({TOOL.max_concurrent})",
        f"first after a second, at last every {openapi.LONGEST_WAIT / 60:g} min",
        f"may take {LOCAL_SECONDS:g} s without progress",
        f"with `endpoint`, `openapi`, `grpc` and `agent` {CALL_SECONDS:g} s",
    ],
    "docs/how-to/hooks.md": [
        f"at most {programs.MAX_RUNNING} of one hook at a time",
    ],
    "docs/how-to/call-log.md": [
        f"at most `call_log.max_content` of each ({show_bytes(CALL_LOG.max_content)})",
        f"keeps {CALL_LOG.keep / 86400:g} days (`call_log.keep`)",
        f"At most {OBSERVE.max_tools:,} tools and {OBSERVE.max_clients} client names",
    ],
    "docs/how-to/tool-http.md": [
        f"`max_response` ({show_bytes(TOOL.max_response)})",
    ],
    "docs/how-to/tool-agent.md": [
        f"The last {local_agent.MOST_CONVERSATIONS} conversations are remembered, {local_agent.MOST_TURNS} turns",
    ],
    "docs/how-to/tool-packs.md": [
        f"it has {extra_tools._SECONDS:g} s",
    ],
    "docs/reference/builtin.md": [
        *(f"`{name}`" for name in NAMES),
        f"takes {BUILTIN.http_get.timeout:g} s at most, redirects included ({BUILTIN.http_get.max_redirects} of them",
        f"and {show_bytes(BUILTIN.http_get.max_size)} unpacked",
        f"{len(coins.COINS)} coins by symbol or name",
        f"kept for {BUILTIN.crypto_price.cache:g} s",
        f"else {crypto_price._PAUSE:g} s",
        f"images up to {show_bytes(file_read.LARGEST_IMAGE)}",
        f"`max_read` ({show_bytes(BUILTIN.files.max_read)}",
        f"`max_file` ({show_bytes(BUILTIN.files.max_file)}",
        f"`max_write` ({show_bytes(BUILTIN.files.max_write)})",
        f"`max_entries` ({BUILTIN.files.max_entries:,}), `timeout` ({BUILTIN.files.timeout:g} s)",
        f"the first {show_bytes(BUILTIN.git_cli.max_output)}, with how much was cut",
    ],
    "docs/explanation/sandbox.md": [
        *(f"| `{name}` |" for name in PROPERTIES),
        f"{SANDBOX.timeout:g} s of wall time (`timeout`), {SANDBOX.memory // 10**6} MB for all",
        f"{SANDBOX.pids} processes and threads (`pids`), files of {show_bytes(SANDBOX.file_size)} (`file_size`)",
        f"{show_bytes(SANDBOX.output)} of each output stream",
        f"measures it every {tree.LOOK_SECONDS:g} s",
        f"may use {sandboxed._PIDS} processes and threads",
        f"a failed check after {'a minute' if choose_tier.ASK_AGAIN == 60 else '?'}",
    ],
    "docs/start/clients.md": [
        *(f"`{client.id}`" for client in KNOWN_CLIENTS),
        f"`startup_timeout_sec = {entries._START_SECONDS}`, `tool_timeout_sec = {entries._CALL_SECONDS}`",
        f"`timeout = {entries._CALL_SECONDS}`",
    ],
    "docs/explanation/daemon.md": [
        f"`daemon.idle_exit` ({DAEMON.idle_exit / 60:g} min)",
        f"`bridge.startup_wait` ({Settings().bridge.startup_wait:g} s)",
        f"for `init_timeout` and {attribution.LIST_SECONDS:g} s at most",
        f"`idle_stop` ({repose.IDLE_STOP / 60:g} min for programs, never for a `url`)",
        f"for `daemon.revalidate` ({DAEMON.revalidate / 86400:g} day), `daemon.warm_up` ({DAEMON.warm_up}) at a time",
        f"What nobody used for {manifest.KEPT_SECONDS / 86400:g} days goes",
        f"answers what it has read, for {front.FINISH_GRACE:g} s at most",
        f"three times within {crashes.WITHIN:g} s",
        f"from {show_bytes(log_rotation.LARGEST)} on",
        *(f"`{section}.{key}`" for section, keys in NEEDS_RESTART.items() for key in sorted(keys)),
        *(f"`{section}`" for section, keys in NEEDS_RESTART.items() if not keys),
    ],
    "docs/how-to/doctor.md": [*(f"`{known.code}`" for known in KNOWN)],
    "docs/reference/configuration.md": [
        *(f"`{name}`" for name in environment.SAFE_NAMES),
        f"looked at every {memory_limit.LOOK_SECONDS:g} s",
        f"Left out: {repose.IDLE_STOP / 60:g} min for a `command`",
    ],
    "docs/explanation/security.md": [
        *(f"`{name}`" for name in environment.SAFE_NAMES),
        f"fewer than {MIN_LENGTH} characters",
        f"up to {model_router_prompt.LONGEST_REQUEST:,} characters of the request",
        f"at most `max_index` ({ROUTER.max_index}) tools",
        f"the first {model_router_prompt.LONGEST_DESCRIPTION} characters of the descriptions",
        f"queries, up to {embedding._QUERY:,} characters",
        f"up to {embedding._TEXT:,} characters of every tool",
        f"A body may have {show_bytes(HTTP.max_body)} at most",
    ],
    "docs/reference/protocol.md": [
        f"has taken the subscription, or after {wanted.FOLLOW_SECONDS:g} s",
        *REVISIONS,
        f"nothing for {era.PROBE_SECONDS:g} s",
        f"at most {updates.BURST} messages at once and {updates.PER_SECOND} a second",
        f"deeper than {definitions.DEEPEST} levels",
        f"larger than {show_bytes(definitions.LARGEST)}",
        f"may list {upstream_filter.MOST:,} of a kind",
        f"`bridge.list_ttl` ({Settings().bridge.list_ttl:g} s)",
        f"({Settings().bridge.instructions_budget:,})",
        f"an answer over {show_bytes(HTTP.max_event)} (`http.max_event`)",
        f"A session may have {session_tasks.MAX_TASKS} tasks",
        f"within {attribution.STRAY_SECONDS:g} s after a call was given up",
        f"Up to {http_streams._KEPT} events ({show_bytes(http_streams._KEPT_BYTES)})",
    ],
    "docs/explanation/questions.md": [
        f"within `questions.timeout` ({ASKING.timeout / 60:g} min)",
        f"At most {asking.MAX_OPEN} questions to one legacy client and {questions.MAX_OPEN} of one server",
        f"a server may ask {driving.MAX_ROUNDS} times",
        f"within {parked_calls.GATHER_SECONDS * 1000:g} ms",
        f"One principal may have {parked_calls.MAX_PARKED} parked calls",
        f"`max_instances` ({SERVER.max_instances})",
        f"`instance_idle` ({SERVER.instance_idle / 60:g} min)",
        f"it waits {choosing.FREE_SECONDS:g} s",
        f"For {attribution.STRAY_SECONDS:g} s after a call was given up",
    ],
    "docs/explanation/authorization.md": [
        f"it waits {auth.SIGN_IN_SECONDS / 60:g} min",
        f"at most {auth.STEP_UPS} times in {auth.STEP_UP_WINDOW / 60:g} min",
    ],
    "docs/explanation/reliability.md": [
        f"it has {SERVER.init_timeout:g} s (`init_timeout`)",
        f"begins at {lifecycle.FIRST_DELAY:g} s and doubles each time, up to {lifecycle.LONGEST_DELAY:g} s",
        f"After {lifecycle.STABLE_AFTER:g} s of being ready",
        f"{lifecycle.FAILURES_IN_WINDOW} failures within {lifecycle.WINDOW:g} s",
        f"after {lifecycle.FAILED_RETRY:g} s",
        f"at least {lifecycle.ON_DEMAND_AFTER:g} s after the last attempt",
        f"silent for {SERVER.ping_interval:g} s (`ping_interval`)",
        f"{tending.PING_MISSES} times in a row without an answer within {session.PING_SECONDS:g} s",
        f"full pipe for {wire_stdio._STALL_SECONDS:g} s",
        f"within {lifecycle.SOON:g} s, waits for it, at most {SERVER.queue_timeout:g} s (`queue_timeout`)",
        f"{SERVER.timeouts.idle:g} s without an answer (`call_timeout`)",
        f"up to {SERVER.timeouts.total:g} s in all",
        f"{LearnedSlots.FEWEST} at first, and up to {LearnedSlots.MOST} while calls wait",
        f"within {LearnedSlots.QUICK:g} s, side by side",
        f"{SERVER.max_queued:,} more wait",
        f"After {SERVER.breaker.failures} calls in a row",
        f"left alone for {SERVER.breaker.open:g} s",
        f"grows by {SERVER.breaker.open:g} s, up to {SERVER.breaker.max_open:g} s",
        f"it has {process.STDIN_GRACE:g} s to end by itself",
        f"and {process.TERM_GRACE:g} s",
        f"looks in a row (every {memory_limit.LOOK_SECONDS:g} s)",
        guard.COOKIE_NAME,
        f"once {conversation.READ_LIMIT >> 20} MiB wait for it",
        f"dropped from {conversation.PUSH_LIMIT >> 20} MiB on",
        f"{http_streams._MAX_WAITING:,} events ({show_bytes(http_streams._MAX_WAITING_BYTES)})",
        f"{HTTP.max_sessions:,} sessions",
        f"{HTTP.session_idle / 60:g} min without use",
        *(
            f"`{failure.__name__}`"
            for failure in (errors.UpstreamUnavailable, errors.UpstreamGone, errors.UpstreamTimeout)
        ),
        *(
            f"| {failure.advice} |"
            for failure in (
                errors.UpstreamUnavailable,
                errors.UpstreamGone,
                errors.UpstreamTimeout,
                errors.UpstreamGarbled,
                errors.AnswerTooLarge,
                errors.Overloaded,
            )
        ),
    ],
}
"""What must stand in which page."""


@pytest.mark.parametrize(
    ("page", "said"),
    [(page, said) for page, list_ in SAID.items() for said in list_],
    ids=lambda value: str(value)[:50],
)
def test_a_page_repeats_the_code_correctly(page: str, said: str) -> None:
    assert said in " ".join((ROOT / page).read_text("utf-8").split())
