package services

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"berth/statestore"
)

// compat is what a KV cache is compatible with, as it came: a hash seed of 64 bits
// must not go through a float.
type compat map[string]json.RawMessage

// stored is the form in which the registry keeps it. The registry reads numbers as
// floats: those that a float cannot hold are kept as strings.
func (c compat) stored() (map[string]any, error) {
	if len(c) == 0 {
		return nil, nil
	}
	size, out := 0, make(map[string]any, len(c))
	for k, raw := range c {
		size += len(k) + len(raw)
		v, err := exactly(raw)
		if err != nil {
			return nil, located("body.compat."+k, err)
		}
		out[k] = exact(v)
	}
	if size > maxCompatBytes {
		return nil, &statestore.TooLargeError{What: "compat", Limit: maxCompatBytes, Size: uint64(size)}
	}
	return out, nil
}

// exactly decodes JSON with its numbers as they stand.
func exactly(raw []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

// exact replaces numbers that a float64 changes by strings.
func exact(v any) any {
	return mapNumbers(v, func(n json.Number) any {
		if f, err := n.Float64(); err == nil && (!isWhole(n) || math.Abs(f) < 1<<53) {
			return n
		}
		return n.String()
	})
}

// plainForm is the form in which values are compared: numbers of one value are
// alike, and like a string of that number, which is how some engines write them.
func plainForm(v any) string {
	if raw, ok := v.(json.RawMessage); ok {
		var err error
		if v, err = exactly(raw); err != nil {
			return string(raw)
		}
	}
	b, err := json.Marshal(mapNumbers(v, canonicalNumber))
	if err != nil {
		return ""
	}
	return string(b)
}

// mapNumbers replaces every number in decoded JSON.
func mapNumbers(v any, number func(json.Number) any) any {
	switch x := v.(type) {
	case json.Number:
		return number(x)
	case float64:
		return number(json.Number(strconv.FormatFloat(x, 'g', -1, 64)))
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = mapNumbers(x[i], number)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(x))
		for k := range x {
			out[k] = mapNumbers(x[k], number)
		}
		return out
	}
	return v
}

// canonicalNumber writes whole numbers with all their digits and others as the
// shortest float.
func canonicalNumber(n json.Number) any {
	text := n.String()
	if isWhole(n) {
		if text == "-0" {
			return "0"
		}
		return text
	}
	f, err := n.Float64()
	switch {
	case err != nil:
		return text
	case f == math.Trunc(f) && math.Abs(f) < 1<<53:
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// isWhole reports whether a number is written without fraction and exponent.
func isWhole(n json.Number) bool { return !strings.ContainsAny(n.String(), ".eE") }
