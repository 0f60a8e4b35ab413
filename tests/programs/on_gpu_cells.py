"""`%%on_gpu` cells in a shell, where no framework is imported yet."""

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


def shell_with(**variables):
    """Return a shell with the extension."""
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    shell.run_line_magic("load_ext", "gpu_magic")
    shell.user_ns.update(variables)
    return shell


def run(shell, cell):
    result = shell.run_cell(cell, store_history=True)
    result.raise_error()
    return result.result


def jax_through_a_package():
    shell = shell_with()
    inside = run(shell, "%%on_gpu cpu:2\nimport makes_with_jax\nstr(makes_with_jax.make().devices())")
    return {"inside": inside, "outside": run(shell, "str(makes_with_jax.make().devices())")}
