"""What tiny chat models read and write: single characters."""

import string
from collections.abc import Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

UNKNOWN = "<unk>"


def character_tokenizer(specials: Sequence[str], blanks: str, **named: Any) -> PreTrainedTokenizerFast:
    """A token a special name, one of `blanks` or a printable sign; `named` says what the specials are for."""
    signs = [sign for sign in string.printable if sign in blanks or not sign.isspace()]
    vocabulary = {token: number for number, token in enumerate([*specials, *signs])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNKNOWN, **named)
