"""The JSON Schema (draft 2020-12) of a policy, for editors and for other programs. Made from the models, so that it
can't say anything else; what has no behaviour yet is in it, marked."""

from typing import Any

from sandboxd.policy.models import PolicyDocument

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def policy_schema() -> dict[str, Any]:
    """The schema of `PolicyDocument`, as plain JSON."""
    schema = PolicyDocument.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": DIALECT, **_strict(schema), "title": "sandboxd policy"}


def _strict(schema: Any) -> Any:
    """No key takes null: an omitted one is meant. Pydantic writes `X | None` where it means omitted. Names that
    don't fit their pattern are errors."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, Any] = {k: _strict(v) for k, v in schema.items() if not (k == "default" and v is None)}  # pyright: ignore[reportUnknownVariableType]
    if "patternProperties" in plain:
        plain["additionalProperties"] = False
    choices = plain.get("anyOf")
    if choices is not None and {"type": "null"} in choices:
        left = [each for each in choices if each != {"type": "null"}]
        del plain["anyOf"]
        plain = {**left[0], **plain} if len(left) == 1 else {"anyOf": left, **plain}
    return plain
