"""Messages as they are stored: their Thrift bytes."""

from tests.unit.common.wire.frames import field, map_of, struct_of, text

STRING, MAP = 11, 13


def stored(
    properties: dict[str, str] | None = None, *, tag: str | None = None, key: str | None = None, body: bytes = b""
) -> bytes:
    """The stored bytes of a message, in the order of its fields."""
    fields = [field(STRING, 1, text(b"orders")), field(STRING, 2, text(body))]
    if key is not None:
        fields.append(field(STRING, 3, text(key.encode())))
    if tag is not None:
        fields.append(field(STRING, 4, text(tag.encode())))
    if properties is not None:
        fields.append(properties_field(*properties.items()))
    return struct_of(*fields)


def properties_field(*entries: tuple[str, str]) -> bytes:
    return field(MAP, 5, map_of(*[(name.encode(), value.encode()) for name, value in entries]))
