// Package frame is the form in which both backends store a turn.
//
//	flags    1 byte     bits 0–6 the type, bit 7 set when the payload is zstd
//	tokens   uvarint
//	raw      uvarint    bytes of the value
//	stored   uvarint    bytes of the payload
//	crc      4 bytes    CRC-32C of the value, little-endian
//	payload             the value, or its zstd frame
//
// A frame says its own length, so that frames can be cut from a stream, and what
// a reader needs to skip or to measure it stands before the payload. The value
// comes back as the bytes that went in, or as [ErrCorrupt]: FuzzNext and
// TestRoundTrip hold that. FuzzMeasure holds that the two readers agree.
package frame
