package services

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzPlainBeat holds the reading of plain heartbeats to what their struct says: it
// takes nothing that others would refuse, and takes it as they would.
func FuzzPlainBeat(f *testing.F) {
	for _, seed := range beatBodySeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var got, want heartbeatInput
		if !got.scan(body) {
			return
		}
		if err := checkJSON(body); err != nil {
			t.Fatalf("%q was taken: %v", body, err)
		}
		strict := json.NewDecoder(bytes.NewReader(body))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&want.Body); err != nil || got.Body != want.Body {
			t.Fatalf("%q: %+v, want %+v (%v)", body, got.Body, want.Body, err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"incarnation", "running", "waiting"} {
			if members[name] == nil {
				t.Fatalf("%q was taken without %s", body, name)
			}
		}
		b := got.Body
		if max(b.Running, b.Waiting, b.MaxRunning) > 1_000_000 || b.KVUsage < 0 || b.KVUsage > 1 || b.Incarnation == "" || len(b.Incarnation) > 128 {
			t.Fatalf("%q was taken", body)
		}
	})
}

// beatBodySeeds are bodies on both sides of every rule.
var beatBodySeeds = []string{
	`{"incarnation":"x","running":1,"waiting":0}`,
	` { "waiting" : 2 , "incarnation" : "x y" ,` + "\t\r\n" + ` "running" : 1000000 } `,
	`{"incarnation":"x","ready":true,"running":3,"waiting":1,"max_running":8,"kv_usage":0.25,"kv_generation":7,"prefix_queries":999999999999999,"prefix_hits":5}`,
	`{"incarnation":"x","ready":false,"running":0,"waiting":0,"kv_usage":1}`,
	`{"incarnation":"x","running":1,"waiting":0,"kv_usage":1.0000000000000001}`,
	`{"incarnation":"x","running":1,"waiting":0,"kv_usage":1.01}`,
	`{"incarnation":"x","running":1,"waiting":0,"kv_usage":1e-1}`,
	`{"incarnation":"x","running":1,"waiting":0,"kv_usage":.5}`,
	`{"incarnation":"x","running":1,"waiting":0,"kv_usage":1.}`,
	`{"incarnation":"x","running":01,"waiting":0}`,
	`{"incarnation":"x","running":-1,"waiting":0}`,
	`{"incarnation":"x","running":1.0,"waiting":0}`,
	`{"incarnation":"x","running":1e3,"waiting":0}`,
	`{"incarnation":"x","running":1000001,"waiting":0}`,
	`{"incarnation":"x","running":"1","waiting":0}`,
	`{"incarnation":"x","running":null,"waiting":0}`,
	`{"incarnation":"x","running":1,"waiting":0,"kv_generation":18446744073709551615}`,
	`{"incarnation":"x","running":1,"waiting":0,"kv_generation":-1}`,
	`{"incarnation":"x","running":1,"running":2,"waiting":0}`,
	`{"incarnation":"x","Running":1,"waiting":0}`,
	`{"incarnation":"x","running":1}`,
	`{"incarnation":"","running":1,"waiting":0}`,
	`{"incarnation":"\u0078","running":1,"waiting":0}`,
	`{"incarnation":"ü","running":1,"waiting":0}`,
	`{"incarnation":"x","running":1,"waiting":0,"ready":1}`,
	`{"incarnation":"x","running":1,"waiting":0,"ready":truefalse}`,
	`{"incarnation":"x","running":1,"waiting":0,"unknown":1}`,
	`{"incarnation":"x","running":1,"waiting":0,}`,
	`{"incarnation":"x","running":1,"waiting":0} {}`,
	`{"incarnation":"x","running":1,"waiting":0`,
	`{"incarnation":"x" "running":1,"waiting":0}`,
	`{"incarnation":"x\u0000","running":1,"waiting":0}`,
	`{}`, `[]`, `"x"`, `null`, ` `,
}

// BeatBodySeeds are for the tests over HTTP.
func BeatBodySeeds() []string { return beatBodySeeds }
