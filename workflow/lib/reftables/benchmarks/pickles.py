"""Pickles of plain data, read as what they are: programs of strangers.

Nothing a pickle names is called but `set` and `frozenset`. A few bytes can still ask for any amount of memory
or time, so every operation is looked at before the first one is carried out.

Source: the Python library's pickletools, which documents the operations.
"""

import io
import pickle
import pickletools
from collections.abc import Iterator
from typing import Any

from reftables.errors import DataError, brief
from reftables.files import read_bytes

MOST_BYTES = 256 * 1024 * 1024  # refer's largest have some 50 MB
MOST_BITS = 256  # of a whole number

# What a pickle may name. Lists, dicts, numbers and text have codes of their own; sets do not in old protocols.
# Nothing more: `str` of lists nested in each other would fill any memory.
_PLAIN = (frozenset, set)
_ALLOWED = {(module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in _PLAIN}


class _PlainUnpickler(pickle.Unpickler):
    """Refuses everything that is not plain data: a name in a pickle is code to import and call."""

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {brief(module)}.{brief(name)}, which is no plain data")
        return _ALLOWED[module, name]


# What the unpickler raises for damaged or hostile bytes.
_DAMAGED = (
    pickle.UnpicklingError,
    EOFError,
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


def read_plain_pickle(path: str) -> Any:
    """The value of a pickle of builtin containers, numbers and text; DataError for any other.

    The authors' files come from Python 2: their texts are read as Latin-1. Lists may share their parts, so the
    value may be far larger than the file: show it by `errors.shown`.
    """
    data = read_bytes(path, most=MOST_BYTES)
    try:
        _check_operations(data)
        return _PlainUnpickler(io.BytesIO(data), encoding="latin1").load()
    except _DAMAGED as error:
        why = brief(str(error))
        raise DataError(f"{path}: not a pickle of plain data, or cut short: {why}. Get the file again.") from error


_PUT = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_GET = frozenset({"GET", "BINGET", "LONG_BINGET"})
_WHOLE = frozenset({"INT", "LONG", "LONG1", "LONG4"})
_HASHED = frozenset(
    {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_SET", "ADDITEMS", "FROZENSET", "REDUCE", "NEWOBJ", "INST"}
)
_FILLED = frozenset({"APPEND", "APPENDS", "SETITEM", "SETITEMS", "LIST", "DICT", "EMPTY_LIST", "EMPTY_DICT"})
_CONTAINERS = _HASHED | _FILLED
_NEVER_WRITTEN = frozenset({"DUP", "POP", "POP_MARK", "BUILD", "OBJ", "NEWOBJ_EX"})  # for plain data


def _check_operations(data: bytes) -> None:
    """UnpicklingError for a pickle whose value would take more time or memory than its length explains.

    A place in the memo allocates all places below it. Tuples and sets that share their parts are walked through
    each time one is hashed, which doubles with every level; so they occur only where no container is shared.
    """
    places: set[int] = set()
    containers: set[int] = set()  # those of the places that hold one
    shares = hashes = on_container = False
    for number, (name, argument) in enumerate(_operations(data)):
        if name in _PUT:
            place = len(places) if argument is None else argument
            if place > number:
                raise pickle.UnpicklingError(f"its operation {number:,} asks for a memo of {place:,} places")
            places.add(place)
            (containers.add if on_container else containers.discard)(place)
            continue
        if name in _NEVER_WRITTEN:
            raise pickle.UnpicklingError(f"its operation {number:,} is {name}, which no plain data needs")
        if name in _WHOLE and argument.bit_length() > MOST_BITS:
            raise pickle.UnpicklingError(f"its operation {number:,} is a number of {argument.bit_length():,} bits")
        on_container = name in _CONTAINERS or (name in _GET and argument in containers)
        shares = shares or (on_container and name in _GET)
        hashes = hashes or name in _HASHED
        if shares and hashes:
            raise pickle.UnpicklingError("it has tuples or sets, and containers that stand in several places")


_OPCODES = {opcode.code.encode("latin-1"): opcode for opcode in pickletools.opcodes}


def _operations(data: bytes) -> Iterator[tuple[str, Any]]:
    """Name and argument of each operation but those that only frame the others, up to the last.

    Not `pickletools.genops`, which takes every text of Python 2 for ASCII.
    """
    stream = io.BytesIO(data)
    while code := stream.read(1):
        if (opcode := _OPCODES.get(code)) is None:
            raise pickle.UnpicklingError(f"it has an unknown operation {code!r}")
        name = opcode.name
        if name == "STRING":
            yield name, stream.readline()
        elif opcode.arg is None:
            yield name, None
        else:
            argument = opcode.arg.reader(stream)
            if name not in {"FRAME", "PROTO"}:
                yield name, argument
        if name == "STOP":
            return
    raise EOFError("it has no end")
