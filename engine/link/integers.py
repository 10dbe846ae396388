"""Integers of the link: all little-endian."""

import struct

U16 = struct.Struct("<H")
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
