"""Reads functions and classes in the text of a file."""

import ast

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def text_of(statement: ast.stmt, source: str) -> str:
    """Returns the lines of a statement, with its decorators."""
    decorators = statement.decorator_list if isinstance(statement, Definition) else []
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    return "\n".join(source.splitlines()[first - 1 : statement.end_lineno])
