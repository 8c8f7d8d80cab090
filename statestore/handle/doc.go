// Package handle signs and reads recovery handles.
//
// A handle is a short, opaque, expiring string that says what its holder was
// told of a session (a [statestore.Floor]) and what it may do with it. Its
// holder cannot change it, move it to another session, or lengthen its life; it
// never replaces the caller's token. It is at most [MaxLen] characters.
//
// The form, big-endian, in unpadded base64url: a form byte, flags and purpose, key id (2), session
// digest (12), expiry in seconds since 1970 (5), floor, second floor if flagged,
// affinity key (16) if flagged, the number of names and 6 bytes of SHA-256 of
// each, and the first 16 bytes of HMAC-SHA256 (RFC 2104) over all before. A
// floor is epoch (6), version (5) and op digest (8).
//
// handle_test.go holds the promises.
package handle
