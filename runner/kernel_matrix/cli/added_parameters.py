"""Give functions of verbs the options that many verbs have, without repeating them in each signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any

Verb = Callable[..., None]


def parameter(name: str, kind: Any, default: Any, option: Any) -> inspect.Parameter:
    """Return a keyword parameter that typer reads as ``option``."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def with_parameters(
    verb: Verb, added: Sequence[inspect.Parameter], take: Callable[..., dict[str, Any]], *, instead_of: str = ""
) -> Verb:
    """Return ``verb`` with further parameters.

    Args:
        verb: The function of a verb.
        added: The parameters.
        take: Called with their values; returns keyword arguments for ``verb``.
        instead_of: The parameter of ``verb`` that ``take`` provides; typer does not see it.
    """
    # Not get_type_hints: before Python 3.11 it puts Optional around what has the default None, and typer then sees no
    # option there.
    own = [one for one in inspect.signature(verb, eval_str=True).parameters.values() if one.name != instead_of]
    names = [one.name for one in added]

    @wraps(verb)
    def called(*args: Any, **kwargs: Any) -> None:
        values = {name: kwargs.pop(name) for name in names if name in kwargs}
        verb(*args, **kwargs, **take(**values))

    called.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in (*own, *added)}
    del called.__wrapped__  # type hints are those above
    return called
