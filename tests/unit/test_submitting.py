"""Paths that go through shells on their way to a job."""

import pytest

from reftables.errors import ConfigError
from reftables.submitting import require_plain


@pytest.mark.parametrize("character", ["$", "`", '"', "'", "\\", "\t", "\n", "\x7f", "\u2028"], ids=ascii)
def test_what_a_shell_gives_a_meaning_to_is_refused_and_named(character: str) -> None:
    with pytest.raises(ConfigError) as caught:
        require_plain({"the folder": "/plain", "the config file 2": f"/a{character}b"})
    assert str(caught.value).startswith(f"the config file 2 {f'/a{character}b'!r} holds {character!r}, which shells")


def test_all_other_names_pass() -> None:
    require_plain({"the folder": "/a b; c & (d) | > e é % * ~ # {x} ! ?"})
