"""The typed text forms of a policy (durations, sizes, rates, names), and the marks for what has no behaviour yet.

Called by the models only. A value in a file is text with a unit; in Python it is a number.
"""

import ipaddress
import json
import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, core_schema

from sandboxd.policy.rules import Network
from sandboxd.policy.units import (
    BYTES,
    COUNT_RATE_FORM,
    DURATION_FORM,
    INSTANT_FORM,
    SIZE_FORM,
    SIZE_RATE_FORM,
    TIME_OF_DAY_FORM,
    Rate,
    parse_bytes,
    parse_count_rate,
    parse_instant,
    parse_seconds,
    parse_size_rate,
    parse_time_of_day,
)


def refuse(message: str, expected: str = "") -> PydanticCustomError:
    """The error a validator raises; `expected` is shown beside it."""
    return PydanticCustomError("policy", "{text}", {"text": message, "expected": expected})


class Model(BaseModel):
    """Base of every part of a policy: unknown keys are errors, no value is coerced, nothing changes afterwards."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, defer_build=True, use_attribute_docstrings=False,
        hide_input_in_errors=True, validate_default=False,
    )  # fmt: skip

    def to_wire(self) -> dict[str, Any]:
        """Plain JSON that `from_wire` turns back into an equal value."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)

    @classmethod
    def from_wire(cls, value: dict[str, Any]) -> Self:
        """Raises pydantic.ValidationError, whose text never shows the input."""
        return cls.model_validate_json(json.dumps(value))


@dataclass(frozen=True, slots=True)
class NotYet:
    """Marks a key that is designed and has no behaviour yet: its form is checked, then it is refused."""

    instead: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def check(value: Any) -> None:
            if value is not None:
                raise PydanticCustomError("not_supported", "not supported yet", {"expected": self.instead})

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "x-not-supported-yet": True}


class Only:
    """Marks a key of which only some values have behaviour yet."""

    def __init__(self, *values: Any, instead: str = "") -> None:
        self.values = values
        self.instead = instead or f"supported: {', '.join(map(_shown, values))}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def check(value: Any) -> Any:
            if value is None or value in self.values:
                return value
            raise PydanticCustomError(
                "not_supported", "{value} is not supported yet", {"value": _shown(value), "expected": self.instead}
            )

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "x-supported-values": list(self.values)}


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def text_form(parse: Callable[[str], Any]) -> BeforeValidator:
    """Text in a file becomes the number; Python code may give the number itself."""

    def read(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            return _parsed(parse, value)
        if info.mode != "json":
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _parsed(parse, str(value))
        raise refuse("expected text")

    return BeforeValidator(read)


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    """What `parse` says is wrong, as a validator's error."""
    try:
        return parse(text)
    except PydanticCustomError:
        raise
    except ValueError as error:
        raise refuse(str(error)) from None


def format_duration(seconds: float) -> str:
    """The shortest form that `units.parse_seconds` reads back."""
    for unit, scale in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= scale and seconds % scale == 0:
            return f"{int(seconds // scale)}{unit}"
    return f"{round(seconds * 1000)}ms"


def format_size(size: int) -> str:
    """The shortest form that `units.parse_bytes` reads back."""
    for unit, scale in reversed(BYTES.items()):
        if size >= scale and size % scale == 0:
            return f"{size // scale}{unit}"
    return f"{size}B"


def _format_rate(rate: Rate) -> str:
    return f"{rate.amount}/{rate.unit}"


def _format_size_rate(rate: Rate) -> str:
    return f"{rate.amount}B/{rate.unit}"


def _json_form(pattern: str, *examples: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": list(examples)})


def written(form: Callable[[Any], str]) -> PlainSerializer:
    return PlainSerializer(form, return_type=str, when_used="json")


Seconds = Annotated[
    float, text_form(parse_seconds), written(format_duration), _json_form(DURATION_FORM, "10s", "5m")
]  # fmt: skip
Bytes = Annotated[int, text_form(parse_bytes), written(format_size), _json_form(SIZE_FORM, "64MiB", "2GiB")]


def _format_instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _format_time_of_day(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


Instant = Annotated[
    float, text_form(parse_instant), written(_format_instant), _json_form(INSTANT_FORM, "2026-12-31T18:00:00Z")
]  # fmt: skip
TimeOfDay = Annotated[
    int, text_form(parse_time_of_day), written(_format_time_of_day), _json_form(TIME_OF_DAY_FORM, "09:00", "17:30")
]  # fmt: skip


class _RateSchema:
    """Lets pydantic hold a `Rate` that the text form made."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(Rate)


CountRate = Annotated[
    Rate, _RateSchema(), text_form(parse_count_rate), written(_format_rate), _json_form(COUNT_RATE_FORM, "50/s")
]  # fmt: skip


def _rates(parse: Callable[[str], Rate], example: str) -> BeforeValidator:
    """One text, or a list of them."""

    def read(value: Any) -> Any:
        if isinstance(value, str):
            value = (value,)
        if not isinstance(value, list | tuple) or not value:
            raise refuse(f"expected an amount a time, such as {example}, or a list of them")
        given = cast(Sequence[Any], value)
        return tuple(_parsed(parse, each) if isinstance(each, str) else each for each in given)

    return BeforeValidator(read)


def _rates_json(pattern: str, example: str) -> WithJsonSchema:
    one = {"type": "string", "pattern": pattern, "examples": [example]}
    return WithJsonSchema({"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]})


def _written_rates(form: Callable[[Rate], str]) -> PlainSerializer:
    def write(rates: Sequence[Rate]) -> list[str]:
        return [form(rate) for rate in rates]

    return PlainSerializer(write, return_type=list[str], when_used="json")


class _RatesSchema:
    """Lets pydantic hold the rates that the text form made."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.tuple_variable_schema(core_schema.is_instance_schema(Rate), min_length=1)


CountRates = Annotated[
    tuple[Rate, ...], _RatesSchema(), _rates(parse_count_rate, "50/s"), _written_rates(_format_rate),
    _rates_json(COUNT_RATE_FORM, "50/s"),
]  # fmt: skip
SizeRates = Annotated[
    tuple[Rate, ...], _RatesSchema(), _rates(parse_size_rate, "2GiB/day"), _written_rates(_format_size_rate),
    _rates_json(SIZE_RATE_FORM, "2GiB/day"),
]  # fmt: skip


def parse_network(text: str) -> Network:
    """A CIDR block without host bits. Raises a validator's error that says what is wrong."""
    expected = "expected a block in CIDR form, such as 10.1.2.0/24 or fd12::/64"
    if "/" not in text:
        raise refuse(f"no prefix length; {expected}", f"a single address: {text[:45]}/{128 if ':' in text else 32}")
    try:
        return ipaddress.ip_network(text, strict=True)
    except ValueError as error:
        raise refuse(f"{error}" if "host bits" in str(error) else "not an address block", expected) from None


class _NetworkSchema:
    """Lets pydantic hold the network that the text form made."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema((ipaddress.IPv4Network, ipaddress.IPv6Network))


Cidr = Annotated[
    Network, _NetworkSchema(), text_form(parse_network), written(str),
    WithJsonSchema({"type": "string", "examples": ["10.1.2.3/32", "fd12:3456::/48"]}),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Form:
    """Marks text that must match a pattern as a whole; `expected` is what a person reads."""

    pattern: str
    expected: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "pattern": f"^(?:{self.pattern})$"}

    def _check(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text, re.ASCII):
            raise refuse(f"expected {self.expected}")
        return text


def _normal_path(path: str) -> str:
    if path != posixpath.normpath(path) or path.startswith("//"):
        raise refuse("expected a path without `.`, `..`, doubled or trailing slashes")
    return path


NAME = r"[a-z0-9](?:[a-z0-9_-]{0,30}[a-z0-9])?"

Port = Annotated[int, Field(ge=1, le=65535)]
# The name of a server, an agent, a volume: short, and safe in labels, tool names and audit rows.
Name = Annotated[str, Form(NAME, "a name of 1 to 32 lower-case letters, digits, - and _")]
SecretName = Annotated[str, Form(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "the name of a secret, such as gh-token")]
VariableName = Annotated[str, Form(r"[A-Za-z_][A-Za-z0-9_]{0,127}", "the name of an environment variable")]
InsidePath = Annotated[str, Form(r"/[^\x00]{0,4095}", "an absolute path inside"), AfterValidator(_normal_path)]
ToolGlob = Annotated[str, Form(r"[a-zA-Z0-9_*?/.-]{1,128}", "a tool's name, or a pattern with * and ?")]
HeaderName = Annotated[str, Form(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}", "the name of a header")]
Text = Annotated[str, Field(max_length=4096)]
