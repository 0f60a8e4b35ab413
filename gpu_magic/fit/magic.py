"""`%gpu_fit`: predict the memory of a step, and on which GPUs it fits."""

from __future__ import annotations

import ast
import re
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from IPython.display import display

from gpu_magic.errors import FitError
from gpu_magic.fit.fit import fit_call, fit_model
from gpu_magic.objects.namespace import evaluated, parse_expression
from gpu_magic.shell.arguments import read, text_named
from gpu_magic.text import code_words, shortened

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["GpuFitMagic"]


class GpuFitMagic:
    """The magic that predicts the memory of a step."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell: Any = shell

    def gpu_fit(self, line: str) -> None:
        """Predict the peak GPU memory of a step, and on which GPUs it fits, before you run it.

            %gpu_fit model optimizer batch   a training step; names in any order
            %gpu_fit train_step(batch)       a call of your own function

        {options}

        A batch is a tensor, a tuple (inputs, targets), a dict of keywords, or a DataLoader. The step runs
        several times on copies without data. Your model does not change. CUDA does not start.
        If your function prints, writes files or uses the network, it also does so during the prediction.
        The rows show the memory at the peak. `%gpu_fit` cannot predict a step that branches on data. The
        error names the line. For JAX, make the arrays first. Then type a call of your function.
        `%gpu_fit` does not support Keras, TensorFlow or CuPy.
        """
        options = read("%gpu_fit", line.rstrip("; "), partial(text_named, self._shell))
        of_model = {name: getattr(options, name) for name in ("loss", "eval", "amp", "dtype")}
        size = int(options.batch) if re.fullmatch("[0-9]{1,9}", options.batch or "") else options.batch
        node = parse_expression(options.request)
        if isinstance(node, ast.Call):
            display(fit_call(*self._call(node), size, **of_model))
            return
        values = [self._value(word) for word in code_words(options.request, commas=True)]
        if options.loss is not None:
            of_model["loss"] = self._value(options.loss, may_call=True)
        display(fit_model(values, size, **of_model))

    def _call(self, node: ast.Call) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Return the function and the arguments of a call. A call with calls in it becomes one function."""
        parts = [node.func, *node.args, *(word.value for word in node.keywords)]
        is_unpacked = any(one.arg is None for one in node.keywords)
        if is_unpacked or any(isinstance(one, ast.Starred) or _runs(one) for one in parts):
            try:
                code = compile(ast.Expression(node), "<gpu_fit>", "eval")
            except SyntaxError as error:  # `f(await x)`
                raise FitError(f"{shortened(ast.unparse(node), 60)} cannot be called: {error.msg}.") from None
            return FunctionType(code, self._shell.user_ns), (), {}
        function, *args = (self._value(ast.unparse(one)) for one in (node.func, *node.args))
        if not callable(function):
            raise FitError(f"{ast.unparse(node.func)} is not a function.")
        kwargs = {str(one.arg): self._value(ast.unparse(one.value)) for one in node.keywords}
        return function, tuple(args), kwargs

    def _value(self, text: str, *, may_call: bool = False) -> Any:
        """Return the value of an expression. Only the expression of --loss may call functions."""
        node = parse_expression(text)
        if node is None:
            raise FitError(f"{shortened(text, 60)} is not an expression. Separate names by spaces.")
        if _runs(node) and not may_call:
            raise FitError(f"{shortened(text, 60)} calls a function. Assign its result to a variable first.")
        return evaluated(self._shell, text)


def _runs(node: ast.AST) -> bool:
    """Return whether an expression has a call or an await."""
    return any(isinstance(one, ast.Call | ast.Await) for one in ast.walk(node))
