package statestore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// DefaultName is the tenant and the pool of callers that name none.
const DefaultName = "default"

// Limits of names, in bytes.
const (
	MaxSessionID  = 256
	MaxInstanceID = 63
	MaxName       = 64
	MaxOpID       = 128
)

// SessionKey names one conversation. The id is opaque: it is compared byte for
// byte and never truncated.
type SessionKey struct {
	Tenant string
	Pool   string
	ID     string
}

// Validate reports whether the key can name a session: tenant and pool as
// [ValidateName] wants them, the id 1 to 256 bytes of UTF-8 without control
// characters. Its errors wrap [ErrInvalid].
func (k SessionKey) Validate() error {
	if err := ValidateName("tenant", k.Tenant); err != nil {
		return err
	}
	if err := ValidateName("pool", k.Pool); err != nil {
		return err
	}
	return ValidateSessionID(k.ID)
}

// ValidateSessionID reports whether id is 1 to 256 bytes of UTF-8 without
// control characters.
func ValidateSessionID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("session id is empty: %w", ErrInvalid)
	case len(id) > MaxSessionID:
		return fmt.Errorf("session id has %d bytes, at most %d are allowed: %w", len(id), MaxSessionID, ErrInvalid)
	case !utf8.ValidString(id):
		return fmt.Errorf("session id is not UTF-8: %w", ErrInvalid)
	}
	// C0, DEL and C1: Unicode category Cc.
	if strings.ContainsFunc(id, func(r rune) bool { return r < 0x20 || (r >= 0x7f && r <= 0x9f) }) {
		return fmt.Errorf("session id has a control character: %w", ErrInvalid)
	}
	return nil
}

// ValidateName reports whether name is 1 to 64 of A–Z a–z 0–9 . _ -; what says
// which name it is in the error.
func ValidateName(what, name string) error {
	return validateToken(what, name, MaxName)
}

// ValidateInstanceID reports whether id is 1 to 63 of A–Z a–z 0–9 . _ -, which
// every Kubernetes pod name is.
func ValidateInstanceID(id string) error {
	return validateToken("instance id", id, MaxInstanceID)
}

func validateToken(what, s string, limit int) error {
	if s == "" || len(s) > limit {
		return fmt.Errorf("%s must have 1 to %d characters: %w", what, limit, ErrInvalid)
	}
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("%s may hold only letters, digits, '.', '_' and '-': %w", what, ErrInvalid)
		}
	}
	return nil
}

// Digest is the session's name inside a store: the first 16 bytes of SHA-256
// over the length-prefixed tenant, pool and id. It has a fixed length and no
// character that a store would have to escape.
func (k SessionKey) Digest() SessionDigest {
	buf := make([]byte, 0, 3*4+len(k.Tenant)+len(k.Pool)+len(k.ID))
	for _, part := range [...]string{k.Tenant, k.Pool, k.ID} {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(part))) //nolint:gosec // bounded by the limits above
		buf = append(buf, part...)
	}
	sum := sha256.Sum256(buf)
	return SessionDigest(sum[:16])
}

// SessionDigest identifies a session without naming it.
type SessionDigest [16]byte

// String is the digest in hexadecimal, 32 characters.
func (d SessionDigest) String() string { return hex.EncodeToString(d[:]) }

// Partition spreads sessions evenly over n partitions, 0 to n-1.
func (d SessionDigest) Partition(n int) int {
	return int(binary.BigEndian.Uint64(d[:8]) % uint64(n)) //nolint:gosec // n is a small positive count
}

// AffinityKey is what the ring hashes, when the caller gave one instead of the
// session id: the ring's 64-bit hash of it, big-endian, and the first 8 bytes of
// its SHA-256. The zero value means that the session id is the affinity key.
type AffinityKey [16]byte

// Owner is one boot of one instance: the id within the fleet and the digest of
// the secret that was minted when this boot registered. The zero value is nobody.
type Owner struct {
	Instance    string `json:"instance"`
	Incarnation string `json:"incarnation"`
}

// IsZero reports whether nobody is named.
func (o Owner) IsZero() bool { return o == Owner{} }

// IncarnationDigest is what others see, and what stores keep, of the secret of
// an incarnation: 16 hexadecimal characters of its SHA-256.
func IncarnationDigest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:8])
}

// OpDigest stands for an operation id: the first 8 bytes of its SHA-256.
type OpDigest [8]byte

// DigestOp digests an operation id.
func DigestOp(op string) OpDigest {
	sum := sha256.Sum256([]byte(op))
	return OpDigest(sum[:8])
}

// ValidateOp reports whether op is 1 to 128 bytes of printable ASCII, so that it
// travels in a header.
func ValidateOp(op string) error {
	if op == "" || len(op) > MaxOpID {
		return fmt.Errorf("op must have 1 to %d characters: %w", MaxOpID, ErrInvalid)
	}
	for _, c := range []byte(op) {
		if c < 0x21 || c > 0x7e {
			return fmt.Errorf("op may hold only printable ASCII without spaces: %w", ErrInvalid)
		}
	}
	return nil
}
