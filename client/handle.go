package client

import "log/slog"

// Handle is a recovery handle: signed, opaque, expiring. It says what its holder
// knows of a session and what it may do, and belongs in no log: printed or
// logged it shows as "[handle]"; string(h) is the real one.
type Handle string

const redacted = "[handle]"

func (h Handle) String() string {
	if h == "" {
		return ""
	}
	return redacted
}

// GoString hides the handle from %#v.
func (h Handle) GoString() string { return `client.Handle("` + h.String() + `")` }

// LogValue hides the handle from slog.
func (h Handle) LogValue() slog.Value { return slog.StringValue(h.String()) }

// mark is a handle with what its answer said: handles are opaque, so their order
// is that of the answers. op is the write that the handle names, "" if another
// answer than that of an own write brought it.
type mark struct {
	handle  Handle
	epoch   uint64
	version uint64
	op      string
}

// samePlace reports whether both name the same version of the same epoch.
func (m mark) samePlace(o mark) bool { return m.epoch == o.epoch && m.version == o.version }

// newer reports whether m says more of the session than o does. A handle of the
// same place is no newer: of two branches, the one that was held first is the
// one that a loss must be noticed by.
func (m mark) newer(o mark) bool {
	switch {
	case m.handle == "":
		return false
	case o.handle == "":
		return true
	case m.epoch != o.epoch:
		return m.epoch > o.epoch
	}
	return m.version > o.version
}
