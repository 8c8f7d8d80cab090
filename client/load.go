package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Record is what Berth holds of a session besides its turns, as a load tells it.
type Record struct {
	Epoch   uint64          `json:"epoch"`
	Version uint64          `json:"version"`
	Count   int             `json:"count"` // turns of the session
	Owner   *Owner          `json:"owner"` // nil or without an instance: nobody
	Tokens  int64           `json:"tokens"`
	Bytes   int64           `json:"bytes"`
	Digest  string          `json:"digest"`
	Meta    json.RawMessage `json:"meta"`
}

// Load reads the record and the turns from the from-th on, from 0. It presents
// no handle and changes nothing, not even what the Session knows.
func (s *Session) Load(ctx context.Context, from int) (*Record, []Turn, error) {
	var rec *Record
	var turns []Turn
	read := func(res *http.Response) error {
		rec, turns = new(Record), nil
		t, err := openTurns(res, rec)
		if err != nil {
			return err
		}
		t.expect(from, &rec.Count)
		for turn, err := range t.all() {
			if err != nil {
				return err
			}
			turns = append(turns, turn)
		}
		return nil
	}
	for torn := 0; ; torn++ {
		k := s.loadCall(from)
		k.read = read
		_, err := s.w.conn.repeat(ctx, k)
		if err == nil {
			return rec, turns, nil
		}
		if !errors.Is(err, ErrChanged) || torn == maxTorn {
			return nil, nil, err
		}
	}
}

// LoadStream is Load for contexts that should not wait in memory: use gets the
// record and the turns as they arrive. The call is repeated only until use was
// called; an error of use or of the turns is returned as it is. ErrChanged
// means that the turns seen so far may be of a context that is no more.
func (s *Session) LoadStream(ctx context.Context, from int, use func(*Record, iter.Seq2[Turn, error]) error) error {
	k := s.loadCall(from)
	k.streams = true
	k.read = func(res *http.Response) error {
		rec := new(Record)
		t, err := openTurns(res, rec)
		if err != nil {
			return err
		}
		t.expect(from, &rec.Count)
		if err := use(rec, t.all()); err != nil {
			return &permanentError{err}
		}
		return nil
	}
	_, err := s.w.conn.repeat(ctx, k)
	return err
}

func (s *Session) loadCall(from int) call {
	k := s.key.call("load session", http.MethodGet)
	k.set("Accept", typeNDJSON)
	if from > 0 {
		k.query = url.Values{"from": {strconv.Itoa(from)}}
	}
	return k
}
