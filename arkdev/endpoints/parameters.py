"""The one table of sampling parameters: the contract's names and each endpoint family's wire names.

Families:

* ``scripted``: the scripted model, in process or served over HTTP. It takes everything.
* ``ark``: Volcengine Ark's Chat API, and services that take its ``thinking`` switch.
* ``generic``: any other OpenAI-compatible server. Beyond OpenAI's own names it is sent what vLLM,
  SGLang and llama.cpp read: ``top_k``, ``repetition_penalty`` and, for ``thinking``, the chat
  template's ``enable_thinking``. A stricter server answers such a name with a 400 that names it.

The family ``local``, the policy in this process, has no wire: it reads the contract's names.

A parameter that a family cannot express is left out only when its value is what the endpoint does
anyway; otherwise the request is refused here (docs/decisions.md, 12). The same table, for readers,
is docs/sampling-parameters.md; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from arkdev.errors import ConfigurationError

Family: TypeAlias = Literal["scripted", "ark", "generic", "local"]


@dataclass(frozen=True)
class WireRule:
    """How one family writes one parameter."""

    wire_name: str | None
    """The key in the request body, or None when the family has no such parameter."""

    left_out_at: tuple[object, ...] = ()
    """Values that are what the endpoint does when the parameter is absent."""

    nearest: str = ""
    """What to set instead when the value cannot be expressed."""

    convert: Callable[[Any], Any] | None = None
    """Makes the wire value; a KeyError means that the value cannot be expressed."""


_AUTO = {"type": "auto"}


def _ark_thinking(thinking: Mapping[str, Any]) -> dict[str, Any]:
    if thinking["type"] not in ("enabled", "disabled", "auto"):
        raise KeyError(thinking["type"])
    return dict(thinking)


def _template_thinking(thinking: Mapping[str, Any]) -> dict[str, Any]:
    return {"enable_thinking": {"enabled": True, "disabled": False}[thinking["type"]]}


_COMMON = {
    "max_new_tokens": WireRule("max_tokens"),
    "temperature": WireRule("temperature"),
    "top_p": WireRule("top_p"),
    "stop": WireRule("stop"),
    "repetition_penalty": WireRule("repetition_penalty"),
    "n": WireRule(None, left_out_at=(1,), nearest="n = 1, and --n-sample for more rollouts"),
}
_TOP_K = WireRule("top_k", left_out_at=(0,))
_SEED = WireRule("seed")

WIRE_RULES: Mapping[str, Mapping[str, WireRule]] = MappingProxyType(
    {
        "scripted": {
            **_COMMON,
            "top_k": _TOP_K,
            "thinking": WireRule("thinking"),
            "seed": _SEED,
        },
        "ark": {
            **_COMMON,
            "top_k": WireRule(None, left_out_at=(0,), nearest="top_k = 0 (off), and top_p"),
            "thinking": WireRule(
                "thinking",
                nearest='thinking = {"type": "enabled"}, "disabled" or "auto"',
                convert=_ark_thinking,
            ),
            "seed": WireRule(None, nearest="no seed: Ark's Chat API has none"),
        },
        "generic": {
            **_COMMON,
            "top_k": _TOP_K,
            "thinking": WireRule(
                "chat_template_kwargs",
                left_out_at=(_AUTO,),
                nearest='thinking = {"type": "enabled"}, "disabled" or "auto"',
                convert=_template_thinking,
            ),
            "seed": _SEED,
        },
    }
)
"""Family -> contract name -> rule."""

_AS_VLLM = {"return_token_ids": True, "logprobs": True}

TOKEN_EVIDENCE_FIELDS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "scripted": {},  # its script says what an answer carries
        "ark": _AS_VLLM,
        "generic": _AS_VLLM,
    }
)
"""Family -> what each request asks for when the endpoint's `has_token_evidence` is true."""

FAMILIES: tuple[str, ...] = tuple(WIRE_RULES)


_THINKING_BY_CHAT = WireRule(
    None,
    left_out_at=(_AUTO,),
    nearest='thinking = {"type": "auto"}, or the Chat API of the same server: api = "chat"',
)
_OF_RESPONSES: Mapping[str, Mapping[str, WireRule]] = MappingProxyType(
    {
        "scripted": {},
        "ark": {
            "stop": WireRule(None, nearest="no stop: Ark's Responses API has none"),
            "repetition_penalty": WireRule(
                None, left_out_at=(1,), nearest="repetition_penalty = 1, which is none"
            ),
        },
        "generic": {"thinking": _THINKING_BY_CHAT},
    }
)
"""Where an endpoint's Responses API differs from its Chat API. `max_new_tokens` is
``max_output_tokens`` in all."""


def write_sampling(
    sampling: Mapping[str, Any], *, family: str, api: str = "chat"
) -> dict[str, Any]:
    """Return `sampling` (contract names) as request fields of `family` (SURFACE ROLL-29, X-37).

    None stands for "unset" and is left out, as is a value that the endpoint uses anyway
    (``top_k`` 0 is "off"). Raises `ConfigurationError` for a name that is no sampling parameter
    and for a value that the family cannot express; the hint is the nearest setting that it can.
    """
    rules = WIRE_RULES[family]
    if api == "responses":
        limit = {"max_new_tokens": WireRule("max_output_tokens")}
        rules = {**rules, **limit, **_OF_RESPONSES[family]}
    wire: dict[str, Any] = {}
    for name, value in sampling.items():
        if value is None:
            continue
        rule = rules.get(name)
        if rule is None:
            raise ConfigurationError(
                f"{name} is not a sampling parameter",
                hint=f"The sampling parameters are {', '.join(sorted(rules))}.",
            )
        if value in rule.left_out_at:
            continue
        if rule.wire_name is None:
            raise _refused(name, value, family=family, rule=rule)
        wire[rule.wire_name] = _wire_value(name, value, family=family, rule=rule)
    return wire


def _wire_value(name: str, value: Any, *, family: str, rule: WireRule) -> Any:
    if rule.convert is None:
        return value
    try:
        return rule.convert(value)
    except (KeyError, TypeError):
        raise _refused(name, value, family=family, rule=rule) from None


def _refused(name: str, value: Any, *, family: str, rule: WireRule) -> ConfigurationError:
    return ConfigurationError(
        f"{name} = {value!r} cannot be sent to an endpoint of the family {family!r}",
        hint=f"Nearest supported setting: {rule.nearest}.",
    )
