"""What a path must not hold where jobs are handed to a scheduler."""

from collections.abc import Mapping

from reftables.errors import ConfigError

# Snakemake and its executors write paths into scripts and command lines in quotes of either kind,
# where a shell still gives these a meaning.
MEANT_FOR_SHELLS = frozenset("$`\"'\\")


def require_plain(paths: Mapping[str, str]) -> None:
    """Refuse paths (by what they are) that a shell on the way to a job could read as code, or other than they are."""
    for what, path in paths.items():
        for character in path:
            if character in MEANT_FOR_SHELLS or not character.isprintable():
                raise ConfigError(
                    f"{what} {path!r} holds {character!r}, which shells read otherwise: on a cluster its jobs could "
                    "run that as code. Rename it, or run on this machine."
                )
