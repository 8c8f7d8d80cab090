package boltstore

import (
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/statestore"
	"berth/statestore/internal/frame"
	"berth/statestore/internal/rules"
)

func millis(t *rapid.T, name string) statestore.Millis {
	return statestore.Millis(rapid.Int64().Draw(t, name))
}

func drawOwner(t *rapid.T, name string) statestore.Owner {
	return statestore.Owner{Instance: rapid.String().Draw(t, name), Incarnation: rapid.String().Draw(t, name+" boot")}
}

func drawOp(t *rapid.T) statestore.Op {
	o := statestore.Op{Version: rapid.Uint64().Draw(t, "version"), Kept: rapid.Uint64().Draw(t, "kept")}
	copy(o.Op[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "op"))
	copy(o.Content[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "content"))
	return o
}

func drawChange(t *rapid.T) statestore.OwnerChange {
	return statestore.OwnerChange{
		Epoch: rapid.Uint64().Draw(t, "epoch"), Version: rapid.Uint64().Draw(t, "version"),
		Instance: rapid.String().Draw(t, "instance"), At: millis(t, "at"),
		Reason: rapid.SampledFrom([]statestore.ChangeReason{statestore.ChangeCreated, statestore.ChangeMoved, "of tomorrow"}).Draw(t, "reason"),
	}
}

func drawRecord(t *rapid.T) *statestore.Record {
	r := &statestore.Record{
		Key:   statestore.SessionKey{Tenant: rapid.String().Draw(t, "tenant"), Pool: rapid.String().Draw(t, "pool"), ID: rapid.String().Draw(t, "id")},
		Owner: drawOwner(t, "owner"), Epoch: rapid.Uint64().Draw(t, "epoch"), Version: rapid.Uint64().Draw(t, "version"),
		Turns: rapid.Uint64().Draw(t, "turns"), Tokens: rapid.Uint64().Draw(t, "tokens"), Bytes: rapid.Uint64().Draw(t, "bytes"),
		Rewritten: rapid.Uint64().Draw(t, "rewritten"), Created: millis(t, "created"), LastTurn: millis(t, "last"),
		BoundAt: millis(t, "bound"), AffinityUntil: millis(t, "affinity"), Expires: millis(t, "expires"),
	}
	copy(r.Digest[:], rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "digest"))
	copy(r.AffinityKey[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key"))
	if ops := rapid.SliceOfN(rapid.Custom(drawOp), 0, statestore.OpsRemembered).Draw(t, "ops"); len(ops) > 0 {
		r.Ops = ops
	}
	if changes := rapid.SliceOfN(rapid.Custom(drawChange), 0, statestore.ChangesRemembered).Draw(t, "changes"); len(changes) > 0 {
		r.Changes = changes
	}
	if rapid.Bool().Draw(t, "exceptional") {
		r.Tail = &statestore.Tail{Owner: drawOwner(t, "tail"), Epoch: rapid.Uint64().Draw(t, "tail epoch")}
		r.Before = statestore.Tombstone{Epoch: rapid.Uint64().Draw(t, "before"), Reason: statestore.Deleted}
		r.Lost = &statestore.AcceptedLoss{Epoch: rapid.Uint64().Draw(t, "lost"), Want: rapid.Uint64().Draw(t, "want")}
		r.Reserved = &statestore.Reservation{
			Job: statestore.JobRef{ID: "j", Token: rapid.Uint64().Draw(t, "token")}, Target: drawOwner(t, "target"), Until: millis(t, "until"),
		}
	}
	return r
}

func drawSlot(t *rapid.T) *slot {
	s := &slot{due: millis(t, "due")}
	if rapid.Bool().Draw(t, "ended") {
		s.until = millis(t, "until")
		s.Tombstone = statestore.Tombstone{Epoch: rapid.Uint64Min(1).Draw(t, "epoch"), Reason: statestore.Expired}
		return s
	}
	s.Record = drawRecord(t)
	s.tombstoneFor = time.Duration(rapid.Int64Range(0, 1<<60).Draw(t, "tombstone"))
	s.parked, s.parkedEver = rapid.Uint64().Draw(t, "parked"), rapid.Uint64().Draw(t, "ever")
	return s
}

func TestSlotRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawSlot(t)
		b := encodeSlot(want)
		got, err := decodeSlot(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if _, err := decodeSlot(b[:cut]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut at %d of %d: %v", cut, len(b), err)
		}
	})
}

func tombstoneSlot(epoch uint64) rules.Slot {
	return rules.Slot{Tombstone: statestore.Tombstone{Epoch: epoch, Reason: statestore.Expired}}
}

func TestNothingIsStoredAsNothing(t *testing.T) {
	t.Parallel()
	if b := encodeSlot(&slot{}); b != nil {
		t.Errorf("an empty slot became %x", b)
	}
	if s, err := decodeSlot(nil); err != nil || s.Record != nil {
		t.Errorf("nothing was read as %+v, %v", s, err)
	}
}

// A file written by this version stays readable: these bytes are of version 1.
func TestGoldenSlot(t *testing.T) {
	t.Parallel()
	// version, kind, due 9, until 42, epoch 82, reason
	b := encodeSlot(&slot{due: 9, until: 42, Slot: tombstoneSlot(82)})
	if got := hex.EncodeToString(b); got != "0102"+"12"+"54"+"52"+"07"+"65787069726564" {
		t.Errorf("a tombstone is encoded as %s", got)
	}
}

func drawParked(t *rapid.T) *parkedWrite {
	p := &parkedWrite{seq: rapid.Uint64().Draw(t, "seq"), at: millis(t, "at")}
	p.Op, p.By = rapid.String().Draw(t, "op"), drawOwner(t, "by")
	p.Floor = statestore.Floor{Epoch: rapid.Uint64().Draw(t, "epoch"), Version: rapid.Uint64().Draw(t, "version"), Op: statestore.OpDigest{1, 2}}
	if rapid.Bool().Draw(t, "with base and meta") {
		base := rapid.Uint64().Draw(t, "base")
		p.Base, p.Meta = &base, rapid.SliceOf(rapid.Byte()).Draw(t, "meta")
	}
	for range rapid.IntRange(0, 3).Draw(t, "turns") {
		p.Turns = append(p.Turns, statestore.Turn{Type: statestore.TurnJSON, Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value"), Tokens: 3})
	}
	return p
}

func TestParkedRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawParked(t)
		var frames [][]byte
		for _, turn := range want.Turns {
			frames = append(frames, frame.Append(nil, turn))
		}
		got, err := decodeParked(encodeParked(want, frames))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
		}
	})
}

// Whatever stands in the file, reading it ends with a value or with ErrDamaged.
func FuzzDecodeSlot(f *testing.F) {
	f.Add(encodeSlot(&slot{due: 9, until: 42, Slot: tombstoneSlot(82)}))
	example := rapid.Custom(drawSlot)
	for i := range 8 {
		f.Add(encodeSlot(example.Example(i)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSlot(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if again, err := decodeSlot(encodeSlot(s)); err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("read %+v, then %+v, %v", s, again, err)
		}
	})
}

func FuzzDecodeParked(f *testing.F) {
	f.Add(encodeParked(&parkedWrite{}, [][]byte{frame.Append(nil, statestore.Turn{Type: statestore.TurnJSON, Value: []byte("{}")})}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := decodeParked(b); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatalf("untyped error %v", err)
		}
	})
}

func BenchmarkSlot(b *testing.B) {
	r := &statestore.Record{Key: keyOf("a session of usual length"), Owner: i1}
	for range statestore.OpsRemembered {
		r.Ops = append(r.Ops, statestore.Op{Version: 1000, Kept: 999})
	}
	s := &slot{}
	s.Record = r
	value := encodeSlot(s)
	b.ReportMetric(float64(len(value)), "bytes")
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			encodeSlot(s)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decodeSlot(value); err != nil {
				b.Fatal(err)
			}
		}
	})
}
