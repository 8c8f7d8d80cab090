package redisstore

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"berth/statestore"
)

// A call of many appends must not keep Redis from others for long.
const (
	manyAppends = 16
	manyBytes   = 128 << 10
)

// many are appends that wait at the same time, as one call of lua/many.lua. Their
// chunks are sent just before it, in one transaction with it: bytes that pass through
// Lua cost Redis more than storing them, since it hashes each.
type many struct {
	images   *images
	puts     []once // of chunks, one a session
	commands []once // what is sent: the call of the function, alone or as the last of a transaction
	reads    []once // of records, to be remembered
	parts    []*share
}

// share is one of many appends.
type share struct {
	*waiting
	digest statestore.SessionDigest
	next   *followUp // worked out here
	record *once     // read after the append, to be remembered
}

// joinAppends takes the appends out of a batch and makes calls of many of them.
// What is left goes as it came.
func (l *lanes) joinAppends(ctx context.Context, batch []*waiting) (rest []*waiting, joined []*many) {
	var parts []*waiting
	total := 0
	flush := func() {
		if len(parts) >= l.fewest {
			joined = append(joined, l.newMany(ctx, parts))
		} else {
			rest = append(rest, parts...)
		}
		parts, total = nil, 0
	}
	for _, w := range batch {
		write, _, ok := appendOf(w.cmd)
		if !ok {
			rest = append(rest, w)
			continue
		}
		size := len(write.stream)
		if len(parts) == manyAppends || total+size > manyBytes {
			flush()
		}
		parts, total = append(parts, w), total+size
	}
	flush()
	return rest, joined
}

// Where a command of [Store.newCommand] has what: its function, how many keys, the
// first key, and after the keys what tests add to the clock, the call and the write.
const (
	argFunction = 1
	argKeys     = 2
	argFirstKey = 3
	afterKeys   = 2
)

// appendOf is the write that a command appends, and the rest of its arguments from
// the clock on; false for other calls.
func appendOf(cmd redis.Cmder) (w writeArg, rest []any, ok bool) {
	args := cmd.Args()
	if len(args) <= argFirstKey || args[argFunction] != appendFn {
		return w, nil, false
	}
	n, _ := args[argKeys].(int)
	rest = args[argFirstKey+n:]
	w, ok = rest[afterKeys].(writeArg)
	return w, rest, ok
}

func (l *lanes) newMany(ctx context.Context, waiting []*waiting) *many {
	m := &many{images: l.images}
	var keys, args []any
	var reads []once
	for _, one := range waiting {
		w, its, _ := appendOf(one.cmd)
		if args == nil {
			args = append(args, its[0])
		}
		its = its[1:]
		p := &share{waiting: one, digest: w.digest}
		all := one.cmd.Args()[argFirstKey:]
		sent := len(w.sizes) > 0 && !w.staged
		if sent {
			m.puts = append(m.puts, newOnce(ctx, append([]any{"hset", all[keyLog]}, w.fields(w.stream)...)...))
		}
		image, wanted := l.images.of(p.digest)
		if n, ok := image.follow(w.write); ok {
			p.next, its = &n, n.args()
			args = append(args, -len(its))
		} else {
			if sent {
				its = withoutChunks(its, w)
			}
			if wanted || image.packed != "" { // which will be out of date
				read := newOnce(ctx, "get", all[keyRecord])
				p.record, reads = &read, append(reads, read)
			}
			args = append(args, len(its))
		}
		keys, args, m.parts = append(keys, all[keyRecord]), append(args, its...), append(m.parts, p)
	}
	call := newOnce(ctx, append(append([]any{"fcall", manyFn, len(keys)}, keys...), args...)...)
	m.commands = []once{call}
	if len(m.puts) > 0 {
		m.commands = slices.Concat([]once{newOnce(ctx, "multi")}, m.puts, []once{call, newOnce(ctx, "exec")})
	}
	m.reads = reads
	return m
}

func newOnce(ctx context.Context, args ...any) once { return once{redis.NewCmd(ctx, args...)} }

// withoutChunks is what lua/append.lua takes of a write whose chunks were sent.
func withoutChunks(args []any, w writeArg) []any {
	packed := bytes.Clone(w.packed)
	packed[whereChunks] = chunksSent
	const before = firstChunk - 1
	out := append(make([]any, 0, len(args)), args[:before]...)
	out[afterKeys-1] = packed
	return append(out, args[before+len(w.sizes):]...)
}

// result is the answer of the function. A transaction that was not begun says what
// was wrong with one of its commands.
func (m *many) result() (any, error) {
	last := m.commands[len(m.commands)-1]
	if len(m.commands) == 1 || last.Err() == nil {
		v := last.Val()
		if list, ok := v.([]any); ok && len(m.commands) > 1 && len(list) > 0 {
			v = list[len(list)-1]
		}
		err, _ := v.(error)
		return v, errors.Join(last.Err(), err)
	}
	for _, c := range m.commands {
		if err := c.Err(); err != nil {
			return nil, err
		}
	}
	return nil, last.Err()
}

// clear removes the chunks that no function looked at, since the server does not
// have it: nothing else would.
func (m *many) clear(ctx context.Context, on processor) {
	for _, put := range m.puts {
		args := put.Args()
		names := []any{"hdel", args[1]}
		for i := 2; i < len(args); i += 2 {
			names = append(names, args[i])
		}
		_ = on.Process(ctx, newOnce(ctx, names...)) // else they stay until the session ends
	}
}

// deliver gives each part its own answer.
func (m *many) deliver(ctx context.Context, on processor) {
	v, err := m.result()
	if notLoaded(err) {
		m.clear(ctx, on)
	}
	answers, ok := v.([]any)
	for i, p := range m.parts {
		cmd, is := p.cmd.(once)
		switch {
		case !is:
			p.cmd.SetErr(ErrDamaged) // nobody else makes appends
		case err != nil:
			cmd.SetErr(err)
		case !ok || i >= len(answers):
			cmd.SetErr(ErrDamaged)
		default:
			m.settle(p, cmd, answers[i])
		}
	}
}

// settle gives a part its answer, and remembers its record.
func (m *many) settle(p *share, cmd once, v any) {
	if err, failed := v.(error); failed {
		cmd.SetErr(err)
		return
	}
	if p.next == nil {
		cmd.SetVal(v)
		if p.record != nil {
			if packed, ok := p.record.Val().(string); ok && len(packed) >= numbersSize {
				m.images.keep(p.digest, packed)
			}
		}
		return
	}
	now, ok := v.(int64)
	switch {
	case !ok || now < 0:
		cmd.SetErr(ErrDamaged)
	case now == 0:
		m.images.mistrust(p.digest)
		cmd.SetVal([]any{movedOn})
	default:
		packed, receipt := p.next.stored(uint64(now))
		m.images.keep(p.digest, packed)
		cmd.SetVal(receipt)
	}
}

// movedOn is the answer of an append that was worked out on a record which is no
// longer that.
const movedOn = "moved on"
