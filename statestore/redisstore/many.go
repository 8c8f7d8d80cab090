package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A call of many appends must not keep Redis from others for long.
const (
	manyAppends = 16
	manyBytes   = 128 << 10
)

// many are appends that wait at the same time, as one call of lua/many.lua.
type many struct {
	once
	parts []*waiting
}

// joinAppends takes the appends out of a batch and makes calls of many of them.
// What is left goes as it came.
func joinAppends(ctx context.Context, batch []*waiting) (rest []*waiting, joined []*many) {
	var parts []*waiting
	bytes := 0
	flush := func() {
		if len(parts) > 1 {
			joined = append(joined, newMany(ctx, parts))
		} else {
			rest = append(rest, parts...)
		}
		parts, bytes = nil, 0
	}
	for _, w := range batch {
		size, ok := appendBytes(w.cmd)
		if !ok {
			rest = append(rest, w)
			continue
		}
		if len(parts) == manyAppends || bytes+size > manyBytes {
			flush()
		}
		parts, bytes = append(parts, w), bytes+size
	}
	flush()
	return rest, joined
}

// Where a command of [Store.newCommand] has what: its function, how many keys, the
// first key, and after the keys what tests add to the clock.
const (
	argFunction = 1
	argKeys     = 2
	argFirstKey = 3
)

// appendBytes is how much an append carries; false for other calls.
func appendBytes(cmd redis.Cmder) (n int, ok bool) {
	args := cmd.Args()
	if len(args) <= argFirstKey || args[argFunction] != appendFn {
		return 0, false
	}
	for _, a := range args[argFirstKey:] {
		if b, is := a.([]byte); is {
			n += len(b)
		}
	}
	return n, true
}

func newMany(ctx context.Context, parts []*waiting) *many {
	var keys, args []any
	for _, w := range parts {
		its := w.cmd.Args()
		n, _ := its[argKeys].(int)
		keys = append(keys, its[argFirstKey:argFirstKey+n]...)
		its = its[argFirstKey+n:]
		if args == nil {
			args = append(args, its[0])
		}
		args = append(append(args, len(its)-1), its[1:]...)
	}
	all := append([]any{"fcall", manyFn, len(keys)}, keys...)
	return &many{once: once{redis.NewCmd(ctx, append(all, args...)...)}, parts: parts}
}

// deliver gives each part its own answer.
func (m *many) deliver() {
	answers, ok := m.Val().([]any)
	for i, w := range m.parts {
		part, is := w.cmd.(once)
		switch {
		case !is:
			w.cmd.SetErr(ErrDamaged) // nobody else makes appends
		case m.Err() != nil:
			part.SetErr(m.Err())
		case !ok || i >= len(answers):
			part.SetErr(ErrDamaged)
		default:
			if err, failed := answers[i].(error); failed {
				part.SetErr(err)
			} else {
				part.SetVal(answers[i])
			}
		}
	}
}
