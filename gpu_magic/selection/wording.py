"""Turns what people say into what one types: `free` is `auto`, `2 gpus` is `auto:2`, `1 and 3` is `1,3`."""

from __future__ import annotations

import difflib
import re

__all__ = ["OF_HELP", "SYNONYMS", "count_meant", "joined"]

# What people type for one of the words that are a request.
SYNONYMS = {
    **dict.fromkeys(("any", "best", "cuda", "free", "gpu", "gpus", "idle", "least"), "auto"),
    **dict.fromkeys(("cpu", "hide", "no", "nothing", "off"), "none"),
    **dict.fromkeys(("*", "every", "everything", "on"), "all"),
    **dict.fromkeys(("default", "undo", "unset"), "reset"),
}

OF_HELP = {
    **dict.fromkeys(("help", "usage", "info", "?", "h"), "%gpus? says what can be chosen."),
    **dict.fromkeys(("list", "ls", "show", "status", "table"), "%gpus alone shows them."),
}

_WITH_COUNT = re.compile(
    r"(amd:)?([a-z]+)\s*[\s:=]\s*([1-9][0-9]{0,3})(?:\s+gpus?)?|"
    r"([1-9][0-9]{0,3})(?:\s+(?:any|best|free|idle|gpus?))*\s+(?:free|idle|gpus)",
    re.IGNORECASE,
)
_NAMES = ("cuda", "gpu", "gpus")  # with a number they are names: `gpu:2` is a framework's, `gpus 2` GPU 2


def count_meant(asked: str) -> str:
    """Return `auto:2` for another way to say it, `auot:2`, `free 2`, `2 gpus`; empty for anything else."""
    match = _WITH_COUNT.fullmatch(asked)
    if match is None:
        return ""
    if match[4]:
        return f"auto:{match[4]}"
    word = match[2].lower()
    is_auto = SYNONYMS.get(word) == "auto" or difflib.get_close_matches(word, ["auto"], cutoff=0.7)
    return f"{(match[1] or '').lower()}auto:{match[3]}" if is_auto and word not in _NAMES else ""


def joined(asked: str) -> str:
    """Return a list as one types it, for one as one says it: `1 and 3`, `1 to 3`, `0 - 2`."""
    with_commas = re.sub(r"\s*,?\s+and\s+", ",", asked, flags=re.IGNORECASE)
    return re.sub(r"(?<=[0-9])\s+(?:-|to|through)\s+(?=[0-9])", "-", with_commas, flags=re.IGNORECASE)
