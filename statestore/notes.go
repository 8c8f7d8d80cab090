package statestore

import (
	"context"
	"fmt"
	"time"
)

// Notes are how the processes that share a store tell each other what each has
// seen: one small note a process, replaced as a whole, which ends by itself. They
// are worth no fsync, and may be lost with what else was not durable: what a note
// says is repeated in the next.
type Notes interface {
	// PutNote replaces the process's note for ttl; an empty one removes it. A
	// note has at most [MaxNoteBytes]: TooLargeError.
	PutNote(ctx context.Context, process string, note []byte, ttl time.Duration) error
	// Notes reads those whose time is not over, by process.
	Notes(ctx context.Context) (map[string][]byte, error)
}

// MaxNoteBytes is the most that one process may say.
const MaxNoteBytes = 1 << 20

// CheckNote refuses a note that no backend takes.
func CheckNote(process string, note []byte) error {
	if process == "" || len(process) > MaxSessionID {
		return fmt.Errorf("the name of a process must have 1 to %d bytes: %w", MaxSessionID, ErrInvalid)
	}
	if n := len(note); n > MaxNoteBytes {
		return &TooLargeError{What: "note", Limit: MaxNoteBytes, Size: uint64(n)}
	}
	return nil
}
