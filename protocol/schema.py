"""Write what is generated from the messages: TypeScript types, JSON Schema, tables of the docs.

    python -m protocol.schema            writes the files
    python -m protocol.schema --check    changes nothing; exits 1 and names the stale files

This is build-time code: nothing of the running product imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import msgspec
from msgspec import inspect

from protocol import base, errors, events, media, messages, shapes, state

ROOT = Path(__file__).resolve().parent.parent
TYPES = Path("web-client/src/protocol/types.gen.ts")
JSON_SCHEMA = Path("docs/protocol.schema.json")
REFERENCE = Path("docs/protocol.md")
BEGIN, END = "<!-- generated:begin -->", "<!-- generated:end -->"

_UNIONS: dict[str, Any] = {
    "Shape": shapes.Shape,
    "ObservedRow": shapes.ObservedRow,
    "AnyOp": messages.AnyOp,
    "AnyEvent": events.AnyEvent,
    "AnyClientMessage": messages.AnyClientMessage,
    "AnyServerMessage": messages.AnyServerMessage,
}
_ALIASES: dict[str, Any] = {
    "Id": shapes.Id,
    "Label": shapes.Label,
    "LongText": shapes.LongText,
    "Coordinate": shapes.Coordinate,
    "Extent": shapes.Extent,
    "StreamId": messages.StreamId,
    "Sha256": messages.Sha256,
    "Role": shapes.Role,
    "TurnStatus": state.TurnStatus,
}
_LIMITS: dict[str, int | float | str] = {
    "SUBPROTOCOL": base.SUBPROTOCOL,
    "MAX_TEXT_BYTES": base.MAX_TEXT_BYTES,
    "MAX_FRAME_BYTES": base.MAX_FRAME_BYTES,
    "MAX_DEPTH": base.MAX_DEPTH,
    "HELLO_TIMEOUT_S": base.HELLO_TIMEOUT_S,
    "MEDIA_VERSION": media.VERSION,
    "HEADER_BYTES": media.HEADER_BYTES,
    "MAX_PAYLOAD_BYTES": media.MAX_PAYLOAD_BYTES,
}

StructClass = type[msgspec.Struct]


def structs() -> Iterator[inspect.StructType]:
    """Every message and nested type, in the order of the source."""
    reachable: dict[StructClass, inspect.StructType] = {}
    waiting: list[inspect.Type] = [inspect.type_info(union) for union in _UNIONS.values()]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, inspect.StructType):
            if kind.cls not in reachable:
                reachable[kind.cls] = kind
                waiting += [field.type for field in kind.fields]
        elif isinstance(kind, inspect.UnionType):
            waiting += kind.types
        elif isinstance(kind, inspect.VarTupleType):
            waiting.append(kind.item_type)
        elif isinstance(kind, inspect.DictType):
            waiting.append(kind.value_type)
    sources: tuple[ModuleType, ...] = (shapes, state, messages, events)
    for source in sources:
        for cls in vars(source).values():
            if isinstance(cls, type) and cls in reachable and cls.__module__ == source.__name__:
                yield reachable[cls]


class Notation:
    """Spell types in TypeScript, which the docs use too, with the names of our aliases."""

    _plain: ClassVar[dict[type[inspect.Type], str]] = {
        inspect.StrType: "string",
        inspect.IntType: "number",
        inspect.FloatType: "number",
        inspect.BoolType: "boolean",
        inspect.NoneType: "null",
    }

    def __init__(self) -> None:
        self.names = {name: inspect.type_info(alias) for name, alias in _ALIASES.items()}
        self.unions = {name: self._members(alias) for name, alias in _UNIONS.items()}

    def spell(self, kind: inspect.Type) -> str:
        """Write a type as it is used in a field."""
        for name, alias in self.names.items():
            if alias == kind:
                return name
        return self.spell_out(kind)

    def spell_out(self, kind: inspect.Type) -> str:
        """Write a type by its parts, so an alias can be defined by it."""
        match kind:
            case inspect.StructType():
                return kind.cls.__name__
            case inspect.EnumType():
                return kind.cls.__name__
            case inspect.LiteralType():
                return " | ".join(_literal(value) for value in kind.values)
            case inspect.VarTupleType():
                item = self.spell(kind.item_type)
                return f"readonly ({item})[]" if " " in item else f"readonly {item}[]"
            case inspect.DictType():
                return f"Record<{self.spell(kind.key_type)}, {self.spell(kind.value_type)}>"
            case inspect.UnionType():
                return " | ".join(self._parts(kind))
            case _:
                return self._plain[type(kind)]

    def spell_union(self, name: str) -> list[str]:
        """Name the members of one of our unions, smaller unions of ours by their name."""
        return self._fold(self.unions[name], within=name)

    def _parts(self, kind: inspect.UnionType) -> list[str]:
        ours = [part.cls.__name__ for part in kind.types if isinstance(part, inspect.StructType)]
        rest = [self.spell(part) for part in kind.types if not isinstance(part, inspect.StructType)]
        return self._fold(ours, within=None) + rest

    def _fold(self, members: list[str], within: str | None) -> list[str]:
        for name, union in self.unions.items():
            if name != within and set(union) <= set(members):
                members = [member for member in members if member not in union] + [name]
        return members

    @staticmethod
    def _members(union: Any) -> list[str]:
        kind = inspect.type_info(union)
        assert isinstance(kind, inspect.UnionType), "a union has two members or more"
        return [part.cls.__name__ for part in kind.types if isinstance(part, inspect.StructType)]


def typescript() -> str:
    """The types, code tables and limits for the web client."""
    notation = Notation()
    lines = ["// Generated by `python -m protocol.schema`; edits are overwritten.", ""]
    for name, limit in _LIMITS.items():
        lines.append(f"export const {name} = {_literal(limit)};")
    lines += ["", *_enumeration("ErrorCode", [code.value for code in errors.ErrorCode])]
    lines += [
        "/** When each code is sent, whether the socket closes, whether to try again. */",
        "export const ERROR_MEANINGS: Record<ErrorCode, "
        "{ when: string; fatal: boolean; retry: boolean }> = {",
    ]
    for code, meaning in errors.MEANINGS.items():
        lines.append(
            f"  {code.value}: {{ when: {_literal(meaning.when)}, "
            f"fatal: {_literal(meaning.fatal)}, retry: {_literal(meaning.retry)} }},"
        )
    lines += ["};", "", "/** Close codes that the server starts, by number. */"]
    lines.append("export const CLOSE_CODES: Record<number, { name: string; when: string }> = {")
    for close, when in errors.CLOSE_MEANINGS.items():
        lines.append(
            f"  {close.value}: {{ name: {_literal(close.name)}, when: {_literal(when)} }},"
        )
    lines += ["};", ""]
    for name, kind in notation.names.items():
        lines.append(f"export type {name} = {notation.spell_out(kind)};")
    for struct in structs():
        lines += ["", *_interface(struct, notation)]
    for name in _UNIONS:
        lines += ["", f"export type {name} ="]
        lines += [f"  | {member}" for member in notation.spell_union(name)]
        lines[-1] += ";"
    return "\n".join(lines) + "\n"


def _enumeration(name: str, values: list[str]) -> list[str]:
    return [f"export type {name} =", *(f"  | {_literal(value)}" for value in values[:-1])] + [
        f"  | {_literal(values[-1])};",
        "",
    ]


def _interface(struct: inspect.StructType, notation: Notation) -> list[str]:
    described = _prose(struct.cls).split("\n")
    if len(described) == 1:
        comment = [f"/** {described[0]} */"]
    else:
        comment = ["/**", *(f" * {line}".rstrip() for line in described), " */"]
    name = struct.cls.__name__
    if struct.array_like:
        parts = ", ".join(f"{field.name}: {notation.spell(field.type)}" for field in struct.fields)
        return [*comment, f"export type {name} = readonly [{parts}];"]
    lines = [*comment, f"export interface {name} {{"]
    if struct.tag_field is not None:
        lines.append(f"  {struct.tag_field}: {_literal(struct.tag)};")
    for field in struct.fields:
        default = _default(field)
        if default is not None:
            lines.append(f"  /** @default {default} */")
        mark = "" if field.required else "?"
        lines.append(f"  {field.encode_name}{mark}: {notation.spell(field.type)};")
    return [*lines, "}"]


def json_schema() -> str:
    """JSON Schema 2020-12 of all messages; each type is under `$defs` by its name."""
    refs, defs = msgspec.json.schema_components(
        list(_UNIONS.values()), ref_template="#/$defs/{name}"
    )
    defs.update(zip(_UNIONS, refs, strict=True))
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{base.SUBPROTOCOL}",
        "title": base.SUBPROTOCOL,
        "anyOf": [{"$ref": "#/$defs/AnyClientMessage"}, {"$ref": "#/$defs/AnyServerMessage"}],
        "$defs": dict(sorted(defs.items())),
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def tables() -> str:
    """The generated part of the reference: messages, nested types, codes, limits."""
    notation = Notation()
    groups: dict[str, list[inspect.StructType]] = {
        "From the client": [],
        "What an `op` does": [],
        "From the server": [],
        "Events": [],
        "Nested types": [],
    }
    for struct in structs():
        groups[_group(struct.cls)].append(struct)
    lines = []
    for title, members in groups.items():
        lines += [f"### {title}", ""]
        for struct in members:
            lines += [*_message_table(struct, notation), ""]
    lines += ["### Types by name", "", "| name | is |", "|---|---|"]
    for name, kind in notation.names.items():
        lines.append(f"| `{name}` | {_cell(notation.spell_out(kind))}{_bounds(kind)} |")
    for name in _UNIONS:
        lines.append(f"| `{name}` | {_cell(' | '.join(notation.spell_union(name)))} |")
    lines += ["", "### Error codes", "", "| code | sent when | socket closes | try again |"]
    lines.append("|---|---|---|---|")
    for code, meaning in errors.MEANINGS.items():
        fatal, retry = ("yes" if fact else "" for fact in (meaning.fatal, meaning.retry))
        lines.append(f"| `{code.value}` | {meaning.when} | {fatal} | {retry} |")
    lines += [
        "",
        "### Close codes",
        "",
        "| code | name | meaning | come back |",
        "|---|---|---|---|",
    ]
    for close, when in errors.CLOSE_MEANINGS.items():
        back = "with back-off" if errors.may_reconnect(close) else "no"
        lines.append(f"| {close.value} | `{close.name}` | {when} | {back} |")
    lines += ["", "### Limits of the protocol", "", "| name | value |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(_literal(limit))} |" for name, limit in _LIMITS.items()]
    return "\n".join(lines)


def _group(cls: StructClass) -> str:
    for base_class, title in (
        (base.ClientMessage, "From the client"),
        (messages.OpBody, "What an `op` does"),
        (events.Event, "Events"),
        (base.ServerMessage, "From the server"),
    ):
        if issubclass(cls, base_class):
            return title
    return "Nested types"


def _message_table(struct: inspect.StructType, notation: Notation) -> list[str]:
    heading = (
        struct.cls.__name__ if struct.tag is None else f"{struct.cls.__name__}: `{struct.tag}`"
    )
    if issubclass(struct.cls, base.ServerMessage):
        heading += f" ({struct.cls.lane})"
    lines = [f"#### {heading}", "", _prose(struct.cls), ""]
    fields = [field for field in struct.fields if not _is_event_base(struct.cls, field.name)]
    if not fields:
        return lines[:-1]
    lines += ["| field | type | when left out |", "|---|---|---|"]
    for field in fields:
        default = _default(field)
        absent = "unchanged" if default is None else f"`{default}`"
        lines.append(
            f"| `{field.encode_name}` | {_cell(notation.spell(field.type))}"
            f"{_bounds(field.type, notation)} "
            f"| {'required' if field.required else absent} |"
        )
    return lines


def _is_event_base(cls: StructClass, field: str) -> bool:
    return issubclass(cls, events.Event) and field in events.Event.__struct_fields__


def _bounds(kind: inspect.Type, notation: Notation | None = None) -> str:
    """Say a type's limits in words; with a notation, a named type's stand by its name alone."""
    if isinstance(kind, inspect.UnionType):
        return "".join(_bounds(part, notation) for part in kind.types)
    if notation is not None and kind in notation.names.values():
        return ""
    bounds = []
    if isinstance(kind, inspect.StrType | inspect.VarTupleType):
        unit = "characters" if isinstance(kind, inspect.StrType) else "items"
        if kind.max_length is not None:
            bounds.append(f"{kind.min_length or 0} to {kind.max_length:,} {unit}")
    if isinstance(kind, inspect.StrType) and kind.pattern is not None:
        bounds.append(f"`{kind.pattern}`")
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        if kind.ge is not None:
            bounds.append(f"at least {kind.ge:,}")
        if kind.le is not None:
            bounds.append(f"at most {kind.le:,}")
    return "".join(f", {bound}" for bound in bounds)


def _default(field: inspect.Field) -> str | None:
    """Write what a field that was left out means; `None` when it means nothing is said."""
    if field.default is not msgspec.NODEFAULT:
        return _literal(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return _literal(field.default_factory())
    return None


def _prose(cls: StructClass) -> str:
    assert cls.__doc__ is not None, f"{cls.__name__} has no docstring"
    return "\n".join(line.strip() for line in cls.__doc__.strip().split("\n"))


def _literal(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _cell(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _reference() -> str:
    path = ROOT / REFERENCE
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


GENERATED: dict[Path, Callable[[], str]] = {
    TYPES: typescript,
    JSON_SCHEMA: json_schema,
    REFERENCE: _reference,
}


def stale() -> list[Path]:
    """Name the generated files that differ from what the messages say now."""
    return [
        path
        for path, text in GENERATED.items()
        if not (ROOT / path).is_file() or (ROOT / path).read_text(encoding="utf-8") != text()
    ]


def write() -> None:
    """Write every generated file that is stale."""
    for path in stale():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(GENERATED[path](), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Run the command line above; the number is the exit status."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m protocol.schema [--check]", file=sys.stderr)
        return 2
    if not arguments:
        write()
        return 0
    old = stale()
    for path in old:
        print(f"stale: {path} (run `python -m protocol.schema`)", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
