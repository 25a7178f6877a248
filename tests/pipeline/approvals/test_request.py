"""What a grant is bound to, and the names of requests."""

import re

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.pipeline.approvals.request import ID_LENGTH, binding_of, new_id
from mcpbridge.protocol.canonical_json import canonical, canonical_digest

texts = st.text(alphabet="ab1:", max_size=3)
arguments = st.sampled_from([b"{}", b"{ }", b'{"a":1,"b":2}', b'{"b":2, "a":1}', b'{"a":1.0,"b":2}', b'{"a":1}'])
parts = st.tuples(texts, texts, texts.map(str.encode), arguments, texts)


@given(parts, parts)
def test_a_binding_is_the_same_exactly_if_all_parts_mean_the_same(
    one: tuple[str, str, bytes, bytes, str], other: tuple[str, str, bytes, bytes, str]
) -> None:
    """No two parts run into each other."""
    is_same = [*one[:3], canonical(one[3]), one[4]] == [*other[:3], canonical(other[3]), other[4]]
    bindings = [binding_of(*of[:3], canonical_digest(of[3]), of[4]) for of in (one, other)]
    assert (bindings[0] == bindings[1]) == is_same


def test_names_can_be_typed_and_are_not_guessed() -> None:
    names = {new_id() for _ in range(1000)}
    assert len(names) == 1000
    assert all(re.fullmatch(rf"[a-km-np-z2-9]{{{ID_LENGTH}}}", name) for name in names)
