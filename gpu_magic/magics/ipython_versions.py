"""What differs between the versions of IPython and ipykernel that magics work in.

IPython 7.34 and ipykernel 6.17 are the oldest, as Google Colab has them. No version is compared: what is used
is looked for. `%load_ext` loads this module, so it defines no class: a NamedTuple takes 0.1 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core import completer as ipython_completer

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.completer import CompletionContext, SimpleMatcherResult

    from gpu_magic.magics.completion import Offers

__all__ = [
    "completion_hook",
    "kernel_comm",
]


def completion_hook(
    shell: Any, complete: Callable[[str], Offers | None]
) -> tuple[list[Any], Callable[[Any], Any]]:
    """Return what completes lines in a shell, and where it belongs.

    Parameters
    ----------
    shell
        The shell; nothing in it is changed.
    complete
        Is given a line up to the cursor, and returns what is offered in place of IPython's own completions;
        None: nothing is.

    Returns
    -------
    tuple[list, Callable]
        A list of the shell's completer, and the matcher that is to be in that list.

    """
    completer = shell.Completer
    if hasattr(ipython_completer, "CompletionContext"):
        return completer.custom_matchers, _matcher_by_context(complete)
    return completer.magic_arg_matchers, _matcher_by_line(completer, complete)


def _matcher_by_context(
    complete: Callable[[str], Offers | None],
) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """Return a matcher for IPython 8.6 and newer."""

    def match(context: CompletionContext) -> SimpleMatcherResult:
        offers = complete(context.text_until_cursor)
        if offers is None:
            return {"completions": []}
        completions = [ipython_completer.SimpleCompletion(text, type=offers.kind) for text in offers.texts]
        return {
            "completions": completions,
            "matched_fragment": offers.fragment,
            "ordered": True,
            "suppress": True,
        }

    match.matcher_api_version = 2  # type: ignore[attr-defined] # as IPython's @context_matcher() sets it
    return match


def _matcher_by_line(completer: Any, complete: Callable[[str], Offers | None]) -> Callable[[str], list[str]]:
    """Return a matcher for IPython before 8.6, which asks no other one where this has something to offer."""

    def match(line: str) -> list[str]:
        before = completer.text_until_cursor
        offers = complete(before)
        if offers is None:
            return []
        # It replaces the word before the cursor, as it divides words: of `auto:2` what follows the colon.
        word = completer.splitter.split_line(line, len(before))
        kept = max(0, len(offers.fragment) - len(word))
        return [text[kept:] for text in offers.texts]

    return match


def kernel_comm(kernel: Any, name: str) -> tuple[Any, Any]:
    """Return a comm of a kernel's; no page is told of it.

    Parameters
    ----------
    kernel
        The kernel of the shell.
    name
        The target by which pages look for it.

    Returns
    -------
    tuple
        The comm, with `send` and `on_msg`; and its manager, whose `register_comm` lets pages find it, and
        `unregister_comm` lets them no longer find it.

    """
    own = getattr(kernel, "comm_manager", None)
    try:
        import comm  # not at the top: there are shells without a kernel
    except ImportError:
        shared = None
    else:
        shared = comm.get_comm_manager()
    # Before 6.18 ipykernel has a manager of its own and does not use the package `comm`, which can be there.
    if shared is None or (own is not None and own is not shared):
        from ipykernel.comm import Comm

        return Comm(target_name=name, primary=False), own
    return comm.create_comm(target_name=name, primary=False), shared
