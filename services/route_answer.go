package services

import (
	"encoding/json"
	"net/http"
	"strconv"

	"berth/routing"
)

// writeRouted renders the answer by hand, the same in body and headers. Nothing
// in it needs escaping: ids, addresses and schemes are checked when an instance
// registers, handles are base64url.
func writeRouted(w http.ResponseWriter, id string, out *routed) {
	d := &out.decision
	h := headerValues{header: w.Header(), values: make([]string, 0, 16)}
	h.set("Content-Type", "application/json")
	h.set(hdrRequestID, id)
	h.set(hdrInstance, d.Instance.ID)
	h.set(hdrEndpoint, endpoints(d))
	h.set(hdrReason, d.Reason.String())

	b := make([]byte, 0, 512)
	b = append(b, `{"instance":"`...)
	b = append(b, d.Instance.ID...)
	b = append(b, `","address":"`...)
	b = append(b, d.Instance.Address...)
	b = append(b, '"')
	if d.Instance.Scheme != "" {
		h.set(hdrScheme, d.Instance.Scheme)
		b = appendString(b, "scheme", d.Instance.Scheme)
	}
	if d.Instance.Rank != nil {
		rank := strconv.Itoa(*d.Instance.Rank)
		h.set(hdrRank, rank)
		b = append(append(b, `,"rank":`...), rank...)
	}
	b = appendString(b, "reason", d.Reason.String())
	if d.Jump {
		h.set(hdrJump, "true")
		b = append(b, `,"jump":true`...)
		b = appendString(b, "previous", d.Previous)
	}
	if out.session {
		b = appendSession(b, &h, out)
	}
	b = appendFallbacks(b, d.Fallbacks)
	b = append(append(b, `,"snapshot_version":`...), strconv.FormatUint(out.snapshot.Version(), 10)...)
	b = append(append(b, `,"valid_ms":`...), strconv.FormatInt(out.valid.Milliseconds(), 10)...)
	if out.degraded != "" {
		h.set(hdrDegraded, out.degraded)
		b = appendString(b, "degraded", out.degraded)
	}
	b = append(b, '}', '\n')
	_, _ = w.Write(b) // the client is gone if this fails
}

// appendSession renders what the caller may know of the session.
func appendSession(b []byte, h *headerValues, out *routed) []byte {
	h.set("Cache-Control", "no-store")
	epoch, version := strconv.FormatUint(out.floor.Epoch, 10), strconv.FormatUint(out.floor.Version, 10)
	h.set(hdrEpoch, epoch)
	h.set(hdrVersion, version)
	h.set(hdrHandle, out.handle)
	b = append(append(b, `,"epoch":`...), epoch...)
	b = append(append(b, `,"version":`...), version...)
	if out.isNew {
		h.set(hdrNew, "true")
		b = append(b, `,"new":true`...)
	}
	return appendString(b, "handle", out.handle)
}

func appendString(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, `":"`...)
	b = append(b, value...)
	return append(b, '"')
}

func appendFallbacks(b []byte, fallbacks []*routing.Instance) []byte {
	if len(fallbacks) == 0 {
		return b
	}
	b = append(b, `,"fallbacks":[`...)
	for i, f := range fallbacks {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"instance":"`...)
		b = append(b, f.ID...)
		b = append(b, `","address":"`...)
		b = append(b, f.Address...)
		b = append(b, `"}`...)
	}
	return append(b, ']')
}

// endpoints is the address, or the list with the fallbacks' in order.
func endpoints(d *routing.Decision) string {
	if len(d.Fallbacks) == 0 {
		return d.Instance.Address
	}
	list := d.Instance.Address
	for _, f := range d.Fallbacks {
		list += "," + f.Address
	}
	return list
}

// headerValues sets headers whose names are canonical already, with one
// allocation for all values.
type headerValues struct {
	header http.Header
	values []string
}

func (h *headerValues) set(name, value string) {
	h.values = append(h.values, value)
	n := len(h.values)
	h.header[name] = h.values[n-1 : n : n]
}

// writeAlways2xx answers a refusal with 200 and says in headers what it would
// have been.
func writeAlways2xx(w http.ResponseWriter, p *Problem) {
	h := w.Header()
	for name, v := range p.GetHeaders() {
		h[name] = v
	}
	h.Set("Content-Type", "application/json")
	h.Set(hdrReason, routing.ReasonNone.String())
	h.Set(hdrStatus, strconv.Itoa(p.Status))
	_ = json.NewEncoder(w).Encode(struct {
		Reason string   `json:"reason"`
		Status int      `json:"status"`
		Refuse *Problem `json:"problem"`
	}{routing.ReasonNone.String(), p.Status, p})
}
