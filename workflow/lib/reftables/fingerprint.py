"""Fingerprints of code: what a stage does, whatever its comments, docstrings and formatting say.

Snakemake sees only the text of a rule's shell command. A stage's fingerprint therefore covers the
syntax trees of its module and of all modules of this package it imports, directly or not.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = "reftables"
ROOT = Path(__file__).parent

# Fields that differ between Python versions or only say where a node stands or what it is for the compiler.
_IGNORED = {"ctx", "kind", "type_comment", "type_ignores"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def fingerprint(modules: Iterable[str]) -> str:
    """Hash of `modules` (dotted names) and of everything of this package that they import."""
    closure: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in closure:
            closure.add(module)
            waiting.extend(imported_modules(module))
    digest = hashlib.sha256()
    for module in sorted(closure):
        digest.update(f"{module} {module_hash(module)}\n".encode())
    return digest.hexdigest()


@cache
def module_hash(module: str) -> str:
    """Hash of the syntax tree of one module, the same on every supported Python."""
    digest = hashlib.sha256()
    for token in _tokens(_tree(module)):
        digest.update(token.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


@cache
def imported_modules(module: str) -> frozenset[str]:
    """The modules of this package that `module` imports anywhere, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(name for name in found if name.split(".")[0] == PACKAGE and _path(name).is_file())


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_path(module).read_bytes())


def _path(module: str) -> Path:
    path = ROOT.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _tokens(value: object) -> Iterator[str]:
    """A syntax tree as a flat, unambiguous sequence of texts; empty fields and docstrings left out."""
    if isinstance(value, ast.JoinedStr):
        yield "(JoinedStr"
        for text_or_node in _f_string_parts(value):
            yield from _tokens(text_or_node)
        yield ")"
    elif isinstance(value, ast.AST):
        yield f"({type(value).__name__}"
        for name in sorted(value._fields):
            part = getattr(value, name, None)
            if name in _IGNORED or part is None or part == []:
                continue
            if name == "body" and isinstance(value, _DOCUMENTED) and ast.get_docstring(value, clean=False) is not None:
                part = part[1:]
            yield name
            yield from _tokens(part)
        yield ")"
    elif isinstance(value, list):
        yield "["
        for item in value:
            yield from _tokens(item)
        yield "]"
    else:
        yield f"{type(value).__name__} {value!r}"


def _f_string_parts(value: ast.JoinedStr) -> list[str | ast.expr]:
    """The parts of an f-string, its plain texts joined: Python 3.12 splits them otherwise than 3.11 and 3.13."""
    parts: list[str | ast.expr] = []
    for part in value.values:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            if parts and isinstance(parts[-1], str):
                parts[-1] += part.value
            elif part.value:
                parts.append(part.value)
        else:
            parts.append(part)
    return parts
