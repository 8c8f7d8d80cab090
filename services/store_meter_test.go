package services

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/statestore"
	"berth/statestore/boltstore"
)

// gathered is what a registry shows: by name and the values of the labels, of a
// histogram its count and its sum.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "berth_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				out[name+" count"], out[name+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			} else {
				out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return out
}

// Every method of a store is measured under its own name, also when its arguments are
// refused.
func TestEveryStoreCallIsMeasuredUnderItsName(t *testing.T) {
	t.Parallel()
	store, err := boltstore.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	meter := newStoreMeter(store, registry, new(outages))
	want := map[string]float64{}
	for method := range reflect.TypeFor[statestore.Store]().Methods() {
		if method.Name == "Close" {
			continue
		}
		name := strings.ToLower(regexp.MustCompile("(.)([A-Z])").ReplaceAllString(method.Name, "${1}_${2}"))
		want[name]++
		callWithZeros(t, reflect.ValueOf(meter).MethodByName(method.Name))
		if name == "load" {
			want["load_turns"] = 0 // there is no session, so there is nothing to read
		}
	}
	got := map[string]float64{}
	for series, n := range gathered(t, registry) {
		rest, _ := strings.CutPrefix(series, "store_call_duration_seconds ")
		if name, ok := strings.CutSuffix(rest, " count"); ok {
			got[name] = n
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("measured\n%v, want\n%v", got, want)
	}
	if err := meter.Close(); err != nil {
		t.Fatal(err)
	}
}

// callWithZeros calls a method of a store, and ranges over what it returns if that
// is a sequence.
func callWithZeros(t *testing.T, method reflect.Value) {
	t.Helper()
	var in []reflect.Value
	for i := range method.Type().NumIn() {
		if i == 0 {
			in = append(in, reflect.ValueOf(t.Context()))
		} else if !method.Type().IsVariadic() || i < method.Type().NumIn()-1 {
			in = append(in, reflect.Zero(method.Type().In(i)))
		}
	}
	out := method.Call(in)
	if views, ok := out[0].Interface().(iter.Seq2[statestore.View, error]); ok {
		for range views { //nolint:revive // it is read to its end
		}
	}
}

// Of a sequence the time counts until its first page is there, whatever the reader
// does with it; an error is one wherever it comes.
func TestASequenceIsMeasuredUntilItBegins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		m := newStoreMeter(nil, registry, nil)
		pages := func(turns int, end error) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				time.Sleep(time.Second)
				for i := range turns {
					if !yield(i, nil) {
						return
					}
				}
				if end != nil {
					yield(0, end)
				}
			}
		}
		for range measured(m, callLoadTurns, pages(3, statestore.ErrUnavailable)) {
			time.Sleep(time.Minute)
		}
		for range measured(m, callLoadTurns, pages(3, statestore.ErrChanged)) {
			break // a caller that went away
		}
		for range measured(m, callLoadTurns, pages(0, nil)) {
			t.Error("a turn")
		}
		got := gathered(t, registry)
		const took = "store_call_duration_seconds load_turns "
		if got[took+"count"] != 3 || got[took+"sum"] != 3 {
			t.Errorf("%v readings of %v s, want 3 of a second each", got[took+"count"], got[took+"sum"])
		}
		if n := got["store_errors_total load_turns unavailable"]; n != 1 {
			t.Errorf("%v failures, want 1", n)
		}
	})
}

// Errors are told apart from refusals, which are answers.
func TestWhatIsAnErrorOfTheStore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{&statestore.OutcomeUnknownError{Err: context.DeadlineExceeded}, "outcome_unknown"},
		{&statestore.NotDurableError{}, "not_durable"},
		{context.DeadlineExceeded, "timeout"},
		{errors.Join(statestore.ErrUnavailable, context.DeadlineExceeded), "timeout"},
		{errors.Join(statestore.ErrUnavailable, context.Canceled), "canceled"},
		{statestore.ErrUnavailable, "unavailable"},
		{statestore.ErrFull, "full"},
		{errors.New("damaged"), "other"},
		{&statestore.NotOwnerError{}, ""},
		{&statestore.StoreBehindError{}, ""},
		{&statestore.VersionConflictError{}, ""},
		{&statestore.LeaseHeldError{}, ""},
		{statestore.ErrNotFound, ""},
		{statestore.ErrStaleIncarnation, ""},
	} {
		if c.err != nil {
			c.err = fmt.Errorf("append: %w", c.err)
		}
		if got := storeFailure(c.err); got != c.want {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
	}
}

// The meter is beside calls of tens of microseconds and more.
func BenchmarkStoreMeter(b *testing.B) {
	m := newStoreMeter(nil, prometheus.NewRegistry(), nil)
	b.ReportAllocs()
	for b.Loop() {
		func() (err error) {
			defer m.took(callAppend, time.Now(), &err)
			return nil
		}()
	}
}
