package services_test

import (
	"fmt"
	"testing"
)

const detected, repaired = "berth_lost_versions_detected_total", "berth_lost_versions_repaired_total"

// A loss counts once, whoever is told of it and however often, and again as repaired
// when the last of it is back.
func TestMetricsOfALossThatIsRepaired(t *testing.T) {
	t.Parallel()
	l := lose(t)
	if n, m := l.metric(detected), l.metric(repaired); n != 0 || m != 0 {
		t.Fatalf("%v lost and %v repaired before anybody was told", n, m)
	}
	held := l.call("GET", "/route?session=s", "", "X-Berth-Handle: "+l.lost).want(200).str("handle")
	l.moved(detected, 2, func() {
		behind(t, "append", l.owner.append("s", "new", l.lost, `1`))
		behind(t, "read", l.other.recover("s", held, "read"))
		behind(t, "claim", l.other.recover("s", held, "claim"))
		behind(t, "finish", l.owner.finish("s", held))
		behind(t, "delete", l.call("DELETE", "/v1/sessions/s", "", "X-Berth-Handle: "+held))
	})
	again := func(w lostWrite) { l.owner.append("s", w.op, w.handle, w.value).want(200) }
	l.moved(repaired, 0, func() { again(l.writes[0]) })
	l.moved(repaired, 2, func() { again(l.writes[1]) })
	l.moved(repaired, 0, func() {
		again(l.writes[1])
		l.owner.append("s", "new", l.lost, `"after"`).want(200)
	})
	if n := l.metric(detected); n != 2 {
		t.Errorf("%v lost in the end, want 2", n)
	}
}

// Each of the calls that are told of a loss counts it.
func TestMetricsOfALossWhoeverIsToldFirst(t *testing.T) {
	t.Parallel()
	for what, call := range map[string]func(l *lossy, h string) answer{
		"append":  func(l *lossy, h string) answer { return l.owner.append("s", "new", h, `1`) },
		"replace": func(l *lossy, h string) answer { return l.owner.replace("s", "new", h, `1`) },
		"claim":   func(l *lossy, h string) answer { return l.other.recover("s", h, "claim") },
		"read":    func(l *lossy, h string) answer { return l.other.recover("s", h, "read") },
		"finish":  func(l *lossy, h string) answer { return l.owner.finish("s", h) },
		"delete":  func(l *lossy, h string) answer { return l.call("DELETE", "/v1/sessions/s", "", "X-Berth-Handle: "+h) },
		"copy": func(l *lossy, _ string) answer {
			return l.other.recover("s", "", "read", fmt.Sprintf(`"have":{"handle":%q,"turns":3}`, l.lost))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := lose(t)
			h := l.call("GET", "/route?session=s", "", "X-Berth-Handle: "+l.lost).want(200).str("handle")
			l.moved(detected, 2, func() { behind(t, what, call(l, h)) })
		})
	}
}

// What a claimant goes on without is neither open nor repaired any more.
func TestMetricsOfALossThatIsAccepted(t *testing.T) {
	t.Parallel()
	l := lose(t)
	h := l.call("GET", "/route?session=s&exclude="+l.owner.id, "", "X-Berth-Handle: "+l.lost).want(200).str("handle")
	behind(t, "claim", l.other.recover("s", h, "claim"))
	l.moved("berth_lost_versions_accepted_total", 2, func() {
		l.moved(`berth_cross_instance_jumps_total{cause="lost"}`, 1, func() {
			h = l.other.recover("s", h, "claim", `"accept_lost":true`).want(200).str("handle")
		})
	})
	l.other.append("s", l.writes[1].op, h, l.writes[1].value).want(200)
	if n, m := l.metric(detected), l.metric(repaired); n != 2 || m != 0 {
		t.Errorf("%v lost and %v repaired, want 2 and 0", n, m)
	}
}

// What was repaired at another process shows when a write stands on it.
func TestMetricsOfALossThatIsRepairedElsewhere(t *testing.T) {
	t.Parallel()
	l := lose(t)
	behind(t, "append", l.owner.append("s", "new", l.lost, `1`))
	second := &worker{setupOn(t, l.bundle.store), l.owner.id, l.owner.incarnation}
	for _, w := range l.writes {
		second.append("s", w.op, w.handle, w.value).want(200)
	}
	if n := second.metric(repaired); n != 0 {
		t.Errorf("who told nobody of a loss counts %v repaired", n)
	}
	l.moved(repaired, 2, func() { l.owner.append("s", "new", l.lost, `1`).want(200) })
	second.stop()
}

// No loss, no count: neither for other refusals nor for writes that are repeated.
func TestMetricsWithoutALoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker("i1")
	h := b.route("s").want(200).str("handle")
	w.append("s", "first", h, `1`).want(200)
	w.append("s", "first", h, `1`).want(200)
	w.append("s", "second", h, `2`).refused(409, "not_owner")
	if n, m := b.metric(detected), b.metric(repaired); n != 0 || m != 0 {
		t.Errorf("%v lost and %v repaired", n, m)
	}
}
