"""Which names of strangers' files are taken."""

import pytest

from reftables.names import unsafe


@pytest.mark.parametrize(
    "name", ["train2014/COCO_train2014_000000000009.jpg", "refs(unc).p", "image/é ü.png", ".hidden", "a..b/c...d"]
)
def test_plain_paths_are_safe(name: str) -> None:
    assert unsafe(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/etc/passwd", "is absolute"),
        ("//host/share", "is absolute"),
        ("C:x", "is absolute"),
        ("..", "leads out of the folder"),
        ("a/..", "leads out of the folder"),
        ("../a", "leads out of the folder"),
        *((name, "is no plain path") for name in ["", ".", "a/", "a//b", "./a", "a/./b", "a\\b", "a\nb", "a\tb"]),
        *((name, "is no plain path") for name in ["a\0b", "a\rb", "a\x7f", "a\x85", "\ud800"]),
        ("n" * 241, "is longer than file systems bear"),
        ("ü" * 121, "is longer than file systems bear"),
        ("n/" * 501 + "n", "is longer than file systems bear"),
    ],
)
def test_other_paths_are_not(name: str, why: str) -> None:
    assert unsafe(name) == why
