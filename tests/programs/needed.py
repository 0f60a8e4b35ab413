"""What of a file of tests runs in another process: a function, and the statements that it needs.

A file of tests imports pytest, and says what its functions return. In the other process there are the function alone,
what binds the names that it uses, and all that stands under::

    if ELSEWHERE:
        import torch

Frameworks are imported there only. A function that asks for `globals()` can use any name: it gets all but the tests.
"""

from __future__ import annotations

import ast
import symtable

ELSEWHERE = False


def needed(source: str, function: str) -> ast.Module:
    """Return the part of a file that a function needs, with the lines' numbers, and without its own decorators."""
    tree = ast.parse(source)
    statements: list[ast.stmt] = []
    if "def test_" not in source:
        return tree
    wanted, kept = {function}, set()
    for one in tree.body:
        if not isinstance(one, ast.If):
            statements.append(one)
        elif ast.unparse(one.test) == "ELSEWHERE":  # other conditions are for type checkers
            statements += one.body
            kept.update(map(id, one.body))
            wanted.update(*map(_names, one.body))
    for one in statements:
        if isinstance(one, ast.FunctionDef):
            one.decorator_list = [it for it in one.decorator_list if not _is_of_tests(it)]
    while more := [one for one in statements if id(one) not in kept and _is_wanted(one, wanted)]:
        for one in more:
            kept.add(id(one))
            wanted |= _names(one)
    return ast.Module([one for one in statements if id(one) in kept], [])


def _is_of_tests(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith(("gives(", "pytest."))


def _is_wanted(one: ast.stmt, wanted: set[str]) -> bool:
    """Return whether a statement binds a wanted name, or does something to one."""
    if isinstance(one, ast.ImportFrom) and one.module == "__future__":
        return True
    if "globals" in wanted:
        return not (
            isinstance(one, ast.FunctionDef) and one.name not in wanted and one.name.startswith("test_")
        )
    bound = _bound(one)
    return bool((bound or _names(one)) & wanted)


def _bound(one: ast.stmt) -> set[str]:
    if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {one.name}
    if isinstance(one, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in one.names}
    return {
        node.id for node in ast.walk(one) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _names(one: ast.stmt) -> set[str]:
    """Return the names that a statement, or a function in it when it is called, takes from the module."""
    if isinstance(one, ast.Import | ast.ImportFrom):
        return set()
    return _globals(symtable.symtable(ast.unparse(one), "", "exec"))


def _globals(table: symtable.SymbolTable) -> set[str]:
    is_module = table.get_type() == "module"
    own = {symbol.get_name() for symbol in table.get_symbols() if is_module or symbol.is_global()}
    return own.union(*map(_globals, table.get_children()))
