"""The real tokenizer of Kosmos-2, from its SentencePiece file and its dictionary.

The file is a protocol buffer: of a ModelProto, field 1 is a piece (1: text, 2: score), field 3 the normaliser
(2: its precompiled table of characters).
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field: integers, floats, and bytes for all that has a length."""
    place = 0
    while place < len(message):
        key, place = varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = varint(message, place)
        elif kind == 5:
            (value,) = struct.unpack_from("<f", message, place)
            place += 4
        elif kind == 2:
            length, place = varint(message, place)
            value = message[place : place + length]
            place += length
        else:
            raise ValueError(f"a field of kind {kind} at byte {place:,}")
        yield key >> 3, value


def varint(message: bytes, place: int) -> tuple[int, int]:
    """An integer in groups of seven bits, the lowest first, and the place after it."""
    value = shift = 0
    while message[place] & 0x80:
        value |= (message[place] & 0x7F) << shift
        shift += 7
        place += 1
    return value | message[place] << shift, place + 1


def real_tokenizer(folder: Path) -> Any:
    """An `XLMRobertaTokenizer`: ids are places in the dictionary, behind four special tokens."""
    from transformers import XLMRobertaTokenizer

    parts = list(fields((folder / "sentencepiece.bpe.model").read_bytes()))
    pieces = [dict(fields(value)) for number, value in parts if number == 1]
    scores = {piece[1].decode(): piece.get(2, 0.0) for piece in pieces}
    (normaliser,) = [dict(fields(value)) for number, value in parts if number == 3]
    lines = (folder / "dict.txt").read_text(encoding="utf-8").split("\n")
    words = [line.rpartition(" ")[0] for line in lines if line]
    specials = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    vocabulary = [*specials, *((word, scores[word]) for word in words), ("<mask>", 0.0)]
    return XLMRobertaTokenizer(vocab=vocabulary, _spm_precompiled_charsmap=normaliser[2])
