"""Classes of Protobuf messages, as protoc would make them from a file."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2  # noqa: F401 (its file is used)

FIELD = descriptor_pb2.FieldDescriptorProto
TYPES = {"string": FIELD.TYPE_STRING, "int64": FIELD.TYPE_INT64, "double": FIELD.TYPE_DOUBLE, "bytes": FIELD.TYPE_BYTES}


def _field(message, name, number, kind, *, repeated=False, optional=False):
    field = message.field.add(
        name=name, number=number, label=FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
    )
    if kind in TYPES:
        field.type = TYPES[kind]
    else:
        field.type = FIELD.TYPE_ENUM if kind.endswith("Kind") else FIELD.TYPE_MESSAGE
        field.type_name = kind
    if optional:
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


FILE = descriptor_pb2.FileDescriptorProto(name="acme_test.proto", package="acme", syntax="proto3")
FILE.dependency.append("google/protobuf/timestamp.proto")
_enum = FILE.enum_type.add(name="Kind")
_enum.value.add(name="UNKNOWN", number=0)
_enum.value.add(name="GIFT", number=1)
_earned = FILE.message_type.add(name="PointsEarned")
_line = _earned.nested_type.add(name="Line")
_field(_line, "sku", 1, "string")
_field(_line, "quantity", 2, "int64")
_node = FILE.message_type.add(name="Node")
_field(_node, "next", 1, ".acme.Node")
_entry = _earned.nested_type.add(name="NotesEntry")
_entry.options.map_entry = True
_field(_entry, "key", 1, "string")
_field(_entry, "value", 2, "int64")
_field(_earned, "earning_id", 1, "string")
_field(_earned, "points", 2, "int64")
_field(_earned, "kind", 3, ".acme.Kind")
_field(_earned, "at", 4, ".google.protobuf.Timestamp")
_field(_earned, "lines", 5, ".acme.PointsEarned.Line", repeated=True)
_field(_earned, "notes", 6, ".acme.PointsEarned.NotesEntry", repeated=True)
_field(_earned, "rate", 7, "double")
_field(_earned, "seal", 8, "bytes")
_field(_earned, "hint", 9, "string", optional=True)
_pool = descriptor_pool.Default()
_pool.Add(FILE)


def _class(name):
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"acme.{name}"))


PointsEarned, Line, Node = _class("PointsEarned"), _class("PointsEarned.Line"), _class("Node")
