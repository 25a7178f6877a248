import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import UnknownName
from mcpbridge.catalog.uris import SeenUris, ServerUris, UriIndex, is_web
from mcpbridge.core.source_settings import NameFilter
from mcpbridge.protocol.body import Body


def candidates(index: UriIndex, uri: str) -> list[str]:
    with pytest.raises(UnknownName) as refusal:
        index.resolve(uri)
    return refusal.value.candidates


def test_a_listed_uri_is_its_servers() -> None:
    index = UriIndex([ServerUris("a", ("file:///x",)), ServerUris("b", ("db://y",))])
    assert index.resolve("file:///x") == ("a", "file:///x")
    assert index.publish("a", "file:///x") == "file:///x"


def test_a_uri_that_two_servers_list_is_refused_with_the_forms_that_work() -> None:
    index = UriIndex([ServerUris("a", ("file:///x",)), ServerUris("b", ("file:///x",))])
    forms = candidates(index, "file:///x")
    assert forms == ["mcpb+a+file:///x", "mcpb+b+file:///x"]
    assert [index.resolve(form) for form in forms] == [("a", "file:///x"), ("b", "file:///x")]
    assert index.publish("b", "file:///x") == "mcpb+b+file:///x"


def test_the_original_of_a_rewritten_uri_works_while_it_is_one_servers_alone() -> None:
    index = UriIndex([ServerUris("a", ("mcpb+z+x:y",)), ServerUris("b")])
    assert index.publish("a", "mcpb+z+x:y") == "mcpb+a+mcpb+z+x:y"
    assert index.resolve("mcpb+z+x:y") == ("a", "mcpb+z+x:y")


def test_a_web_address_of_two_servers_is_the_first_ones() -> None:
    index = UriIndex([ServerUris("b", ("https://x/",)), ServerUris("a", ("https://x/",))])
    assert index.resolve("https://x/") == ("a", "https://x/")
    assert index.publish("b", "https://x/") == "https://x/"


def test_an_expansion_is_its_templates_servers() -> None:
    index = UriIndex([ServerUris("a", templates=("db://{table}/{id}",)), ServerUris("b", templates=("db://{table}",))])
    assert index.resolve("db://users/7") == ("a", "db://users/7")
    assert index.resolve("db://users") == ("b", "db://users")


def test_an_expansion_of_two_servers_templates_is_refused_with_forms_that_work() -> None:
    index = UriIndex([ServerUris("a", templates=("file:///{+p}",)), ServerUris("b", templates=("file:///{+p}",))])
    assert candidates(index, "file:///etc/x") == ["mcpb+a+file:///etc/x", "mcpb+b+file:///etc/x"]
    assert index.resolve("mcpb+b+file:///etc/x") == ("b", "file:///etc/x")
    assert index.resolve_template("mcpb+a+file:///{+p}") == ("a", "file:///{+p}")


def test_what_is_listed_goes_before_templates() -> None:
    index = UriIndex([ServerUris("a", templates=("file:///{+p}",)), ServerUris("b", ("file:///x",))])
    assert index.resolve("file:///x") == ("b", "file:///x")
    assert index.resolve("file:///y") == ("a", "file:///y")


def test_an_unlisted_uri_goes_to_the_server_that_alone_has_such() -> None:
    """Spec: a server may be asked for what it does not list; links in results are such."""
    index = UriIndex([ServerUris("a", ("git://one/x", "git://two/x")), ServerUris("b", ("git://three/x", "db://y"))])
    assert index.resolve("git://three/other") == ("b", "git://three/other")
    assert index.resolve("db://other") == ("b", "db://other")
    assert candidates(index, "git://four/x") == ["mcpb+a+git://four/x", "mcpb+b+git://four/x"]


def test_a_form_of_ours_in_a_result_is_wrapped_once_more() -> None:
    index = UriIndex([ServerUris("a"), ServerUris("b")])
    assert index.publish("zz", "x:y") == "x:y", "no server of that name is configured"
    assert index.publish("a", "mcpb+b+x:y") == "mcpb+a+mcpb+b+x:y"


def test_a_link_that_reads_as_what_another_server_has_is_published_otherwise() -> None:
    """Bridge: the host of the link is one that its server uses, and yet it is how another server's app is listed."""
    servers = [ServerUris("a", ("ui://b/x",)), ServerUris("b", ("ui://z/x",)), ServerUris("c", ("ui://z/x",))]
    index = UriIndex(servers)
    assert index.resolve("ui://b/z/x") == ("b", "ui://z/x")
    assert index.resolve("ui://b/other") == ("a", "ui://b/other")
    published = index.publish("a", "ui://b/z/x")
    assert published != "ui://b/z/x"
    assert index.resolve(published) == ("a", "ui://b/z/x")


def test_an_unknown_scheme_goes_to_the_only_server_with_resources() -> None:
    assert UriIndex([ServerUris("a", ("x:y",)), ServerUris("b")]).resolve("log://1") == ("a", "log://1")


def test_nobodys_uri_is_answered_with_the_nearest() -> None:
    assert candidates(UriIndex([ServerUris("a"), ServerUris("b")]), "file:///x") == []
    with pytest.raises(UnknownName, match=r"Unknown resource template: x:\{z\} \(did you mean x:\{y\}\?\)"):
        UriIndex([ServerUris("a", templates=("x:{y}",))]).resolve_template("x:{z}")


def test_what_several_could_be_asked_for_and_nobody_knows_is_unknown_not_ambiguous() -> None:
    """Forms that lead to each are told all the same: it may be a URI that one of them does not list."""
    index = UriIndex([ServerUris("a", ("x:y",)), ServerUris("b", ("z:y",))])
    forms = r"mcpb\+a\+nope://x, mcpb\+b\+nope://x"
    with pytest.raises(UnknownName, match=rf"^Unknown resource: nope://x \(did you mean {forms}\?\)$"):
        index.resolve("nope://x")
    both = UriIndex([ServerUris("a", ("x:y",)), ServerUris("b", ("x:y",))])
    with pytest.raises(UnknownName, match="Ambiguous resource"):
        both.resolve("x:y")


def test_apps_keep_their_scheme_and_are_found_unlisted() -> None:
    index = UriIndex([ServerUris("a", unlisted=("ui://app",)), ServerUris("b", unlisted=("ui://app", "ui://b/more"))])
    assert index.publish("a", "ui://app") == "ui://a/app"
    assert index.resolve("ui://b/app") == ("b", "ui://app")
    assert index.resolve("ui://b/more") == ("b", "ui://b/more")
    assert index.resolve("ui://b/else") == ("b", "ui://b/else"), "b uses this host itself"
    assert index.resolve("ui://a/else") == ("a", "ui://else"), "nobody uses this host, so it names the server"
    with pytest.raises(UnknownName):
        index.resolve("ui://a")  # it names a server, and nothing of it
    assert index.seen_in("ui://app") == "", "in nobody's results"


HIDING = ServerUris(
    "a",
    listed=("file:///pub/x",),
    templates=("file:///pub/{+p}",),
    hidden=frozenset({"file:///secret", "file:///pub/hidden"}),
    hidden_templates=("vault://{key}",),
    names=NameFilter(exclude=["*secret*", "vault://{key}"]),
)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///secret",
        "file:///pub/hidden",
        "file:///pub/%68idden",
        "file:///pub/secrets/1",
        "file:///pub/%73ecret",
        "file:///pub/../x",
        "file:///pub/%2e%2e%2fx",
        "file:///pub/..\\x",
        "vault://42",
    ],
)
def test_what_the_configuration_hides_is_reached_by_no_spelling(uri: str) -> None:
    index = UriIndex([HIDING])
    for spelling in (uri, f"mcpb+a+{uri}"):
        with pytest.raises(UnknownName):
            index.resolve(spelling)


def test_what_it_does_not_hide_is_reached() -> None:
    index = UriIndex([HIDING])
    assert index.resolve("file:///pub/x") == ("a", "file:///pub/x")
    assert index.resolve("file:///pub/a/b%2Fc") == ("a", "file:///pub/a/b%2Fc")
    assert index.resolve("mcpb+a+other://y") == ("a", "other://y")


def test_includes_hold_for_unlisted_uris() -> None:
    index = UriIndex([ServerUris("a", ("file:///pub/x",), names=NameFilter(include=["file:///pub/*"]))])
    assert index.resolve("file:///pub/y") == ("a", "file:///pub/y")
    assert candidates(index, "file:///priv/y") == ["file:///pub/x"]


def test_a_server_without_a_filter_may_be_asked_for_anything() -> None:
    """What `..` means is for the server to decide; the bridge only hides what it was told to hide."""
    index = UriIndex([ServerUris("a", ("file:///x",))])
    assert index.resolve("file:///a/../b") == ("a", "file:///a/../b")


def test_a_link_out_of_a_result_stays_as_it_is_and_is_read_where_it_came_from() -> None:
    """Spec, tools: links need not be in any list. A local client may know what to do with the very URI."""
    index = UriIndex([ServerUris("a"), ServerUris("b", ("x:y",)), ServerUris("c")])
    assert index.publish("a", "shot://1") == "shot://1"
    assert index.resolve("shot://1") == ("a", "shot://1")
    assert index.publish("c", "shot://1") == "mcpb+c+shot://1", "it is taken"
    assert index.resolve("shot://1") == ("a", "shot://1")


def test_what_was_seen_is_kept_from_one_index_to_the_next_until_somebody_lists_it() -> None:
    seen = SeenUris()
    UriIndex([ServerUris("a"), ServerUris("b")], seen).publish("a", "shot://1")
    assert UriIndex([ServerUris("a"), ServerUris("b")], seen).resolve("shot://1") == ("a", "shot://1")
    assert UriIndex([ServerUris("a"), ServerUris("b", ("shot://1",))], seen).resolve("shot://1") == ("b", "shot://1")
    assert candidates(UriIndex([ServerUris("b"), ServerUris("c")], seen), "shot://1") == []


def test_no_server_takes_over_what_looks_like_anothers_by_linking_to_it() -> None:
    index = UriIndex([ServerUris("evil"), ServerUris("fs", ("file:///x",))])
    assert index.publish("evil", "file:///home/me/y") == "mcpb+evil+file:///home/me/y"
    assert index.resolve("file:///home/me/y") == ("fs", "file:///home/me/y")


def test_a_single_server_is_asked_for_everything() -> None:
    assert UriIndex([ServerUris("a")]).resolve("any://x") == ("a", "any://x")
    assert candidates(UriIndex([ServerUris("a", names=NameFilter(include=["x:*"]))]), "any://x") == []


def test_seen_uris_are_bounded() -> None:
    seen = SeenUris()
    for i in range(10_001):
        assert seen.note("a", f"x:{i}") == "a"
    assert seen.owner("x:0") is None
    assert seen.owner("x:1") == "a"
    seen.note("a", "x:1")
    seen.note("a", "x:new")
    assert seen.owner("x:1") == "a", "used since"
    seen.note("a", "y" * 5_000)
    assert seen.owner("y" * 5_000) is None


def test_only_results_that_may_hold_uris_need_a_look() -> None:
    """What the usual result costs is a search; where there is one server only, nothing."""
    several = UriIndex([ServerUris("a"), ServerUris("b", ("mcpb+x+y:z",))])
    assert several.may_hold_uris("a", Body(b'{"content":[{"type":"resource_link","uri":"x:y"}]}'))
    assert not several.may_hold_uris("a", Body(b'{"content":[]}'))
    assert not UriIndex([ServerUris("a")]).may_hold_uris("a", Body(b'{"uri":"x:y"}'))
    assert UriIndex([ServerUris("b", ("mcpb+x+y:z",))]).may_hold_uris("b", Body(b'{"uri":"x:y"}'))
    shared = UriIndex([ServerUris("a", unlisted=("ui://x",)), ServerUris("b", unlisted=("ui://x",))])
    assert shared.may_hold_uris("a", Body(b'{"_meta":{"ui":{"resourceUri":"ui://x"}}}'))
    assert not several.may_hold_uris("a", Body(b'{"_meta":{"ui":{"resourceUri":"ui://x"}}}')), "it has no apps"


def test_an_unknown_slug_names_nobody() -> None:
    assert candidates(UriIndex([ServerUris("a"), ServerUris("b")]), "mcpb+z+x:y") == []


def test_a_server_that_is_away_is_still_named() -> None:
    assert UriIndex([ServerUris("a"), ServerUris("b", ("x:y",))]).resolve("mcpb+a+x:y") == ("a", "x:y")


uris = st.sampled_from(
    ["file:///x", "file:///y", "ui://x", "ui://a/x", "ui://b/x", "ui://b/a/x", "x", "", "mcpb+a+x", "mcpb+a+file:///x",
     "https://w/", "db://t/1", "db://u/1"]
)  # fmt: skip
templates = st.sampled_from(["file:///{+p}", "{+any}", "ui://{a}", "ui://a/{b}", "db://{t}/{i}", "mcpb+a+{x}", "{bad"])
some_servers = st.lists(
    st.builds(
        ServerUris,
        server=st.sampled_from(["a", "A", "b", "c d"]),
        listed=st.lists(uris, max_size=3, unique=True).map(tuple),
        unlisted=st.lists(uris, max_size=2, unique=True).map(tuple),
        templates=st.lists(templates, max_size=2, unique=True).map(tuple),
    ),
    min_size=1,
    unique_by=lambda one: one.server,
)


@given(some_servers, st.data())
def test_what_is_published_leads_back_to_where_it_came_from(servers: list[ServerUris], data: st.DataObject) -> None:
    """Bridge: a URI in a list, an update or a result can be read, and is read where it came from."""
    index = UriIndex(servers)
    server = data.draw(st.sampled_from([one.server for one in servers]))
    known = next(one for one in servers if one.server == server)
    uri = data.draw(uris | st.text("abu:/x", max_size=6) | st.sampled_from([*known.listed, *known.unlisted, "x:z"]))
    if not is_web(uri):
        assert index.resolve(index.publish(server, uri)) == (server, uri)


@given(some_servers)
def test_published_templates_lead_back_too(servers: list[ServerUris]) -> None:
    index = UriIndex(servers)
    for target, published in index.templates.items():
        assert index.resolve_template(published) == target


@given(some_servers, st.text(max_size=30) | uris)
def test_any_text_is_a_servers_or_nobodys(servers: list[ServerUris], uri: str) -> None:
    index = UriIndex(servers)
    try:
        server, _ = index.resolve(uri)
    except UnknownName as refusal:
        for form in refusal.candidates:
            index.resolve(form)
    else:
        assert server in {one.server for one in servers}
