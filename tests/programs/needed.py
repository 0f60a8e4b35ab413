"""What of a file of tests runs in another process: a function, and the statements that it needs.

A file of tests imports pytest, and says what its functions return. In the other process there are the function alone,
what binds the names that it uses, and what is done to those. Frameworks are imported there only::

    if ELSEWHERE:
        import torch

A function that asks for `globals()` can use any name: it gets all but the tests.
"""

from __future__ import annotations

import ast
import symtable

ELSEWHERE = False


def needed(source: str, function: str) -> ast.Module:
    """Return the part of a file that a function needs, with the lines' numbers, and without its own decorators."""
    statements: list[ast.stmt] = []
    for one in ast.parse(source).body:
        if isinstance(one, ast.If):  # other conditions are for type checkers
            statements += one.body if ast.unparse(one.test) == "ELSEWHERE" else []
        elif not _is_docstring(one):
            statements.append(one)
    for one in statements:
        if isinstance(one, ast.FunctionDef):
            one.decorator_list = [it for it in one.decorator_list if not _is_of_tests(it)]
    wanted, kept = {function}, set()
    while more := [one for one in statements if id(one) not in kept and _is_wanted(one, wanted)]:
        for one in more:
            kept.add(id(one))
            wanted |= _names(one)
    return ast.Module([one for one in statements if id(one) in kept], [])


def _is_of_tests(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith(("gives(", "pytest."))


def _is_docstring(one: ast.stmt) -> bool:
    return isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)


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

    def names(table: symtable.SymbolTable) -> set[str]:
        found = {
            one.get_name() for one in table.get_symbols() if one.is_global() or table.get_type() == "module"
        }
        return found.union(*map(names, table.get_children()))

    return (
        set()
        if isinstance(one, ast.Import | ast.ImportFrom)
        else names(symtable.symtable(ast.unparse(one), "", "exec"))
    )
