"""`%%on_gpu` cells in a shell, where no framework is imported yet."""

from tests.programs.cells import run, shell_with_magics


def jax_through_a_package():
    shell = shell_with_magics()
    inside = run(shell, "%%on_gpu cpu:2\nimport makes_with_jax\nstr(makes_with_jax.make().devices())")
    return {"inside": inside, "outside": run(shell, "str(makes_with_jax.make().devices())")}
