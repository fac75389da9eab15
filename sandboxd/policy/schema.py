"""The JSON Schema (draft 2020-12) of a policy, for editors and for other programs. Made from the models, so that it
can't say anything else; what has no behaviour yet is in it, marked."""

from typing import Any

from sandboxd.policy.models import PolicyDocument

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def policy_schema() -> dict[str, Any]:
    """The schema of `PolicyDocument`, as plain JSON."""
    schema = PolicyDocument.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": DIALECT, "title": "sandboxd policy", **_without_null(schema)}


def _without_null(schema: Any) -> Any:
    """No key takes null: an omitted one is meant. Pydantic writes `X | None` where it means omitted."""
    if isinstance(schema, list):
        return [_without_null(each) for each in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, Any] = {k: _without_null(v) for k, v in schema.items() if not (k == "default" and v is None)}  # pyright: ignore[reportUnknownVariableType]
    choices = plain.get("anyOf")
    if choices is not None and {"type": "null"} in choices:
        left = [each for each in choices if each != {"type": "null"}]
        del plain["anyOf"]
        plain = {**left[0], **plain} if len(left) == 1 else {"anyOf": left, **plain}
    return plain
