package main

import (
	"errors"
	"fmt"
	"strings"
)

// sizes are the fleets that lookups are measured with.
var sizes = []int{10, 100, 1000}

// row is a subject with a number of points, and what was measured.
type row struct {
	subject
	given   int // points it was given
	why     string
	lookup  map[int]float64 // × hash, by fleet size; absent where the build takes too long
	abreast map[int]float64 // the same, of lookups that need not wait for one another
	allocs  float64

	builds, adds, removes series // at 100 members
	anew                  bool   // a removal is a new build
	large                 series // builds of 1,000 members
	quality
}

// measure does everything. tell is told how far it is.
func measure(p plan, tell func(format string, args ...any)) (*report, error) {
	keys := sessionKeys(p.keys)
	rows, notes, err := lineUp(p, keys, tell)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		tell("balance and movement: %s, %d points", r.name, r.given)
		if r.quality, err = r.judge(r.given, p.fleets, keys); err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
	}
	tell("builds, adds and removes")
	if err := changes(rows, 5); err != nil {
		return nil, err
	}
	for _, n := range sizes {
		if err := raceLookups(rows, n, p, keys, tell); err != nil {
			return nil, err
		}
	}
	return newReport(p, rows, notes), nil
}

// lineUp decides who is measured with how many points.
func lineUp(p plan, keys []string, tell func(string, ...any)) (rows []*row, notes []string, err error) {
	var target float64
	for _, s := range subjects() {
		if s.module != "berth" && p.only != "" && !strings.Contains(s.name, p.only) {
			continue
		}
		first := &row{subject: s, given: s.points, why: "default"}
		rows = append(rows, first)
		switch {
		case s.name == "berth":
			q, err := s.judge(s.points, p.fleets, keys)
			if err != nil {
				return nil, nil, err
			}
			target = q.maxMean
			continue
		case s.module == "berth":
			continue
		case s.points == 0:
			first.why = "has none"
			continue
		}
		tell("points that %s needs", s.name)
		points, best, err := s.evenPoints(target, p.fleets, keys)
		switch {
		case errors.Is(err, errTooSlow):
			notes = append(notes, fmt.Sprintf("%s: building takes over a minute before it is as even as Berth", s.name))
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", s.name, err)
		case points == 0:
			notes = append(notes, fmt.Sprintf("%s: not as even as Berth with %d points either: max/mean %.3f", s.name, candidates[len(candidates)-1], best))
		case points == s.points:
			first.why = "default, as even as Berth"
		default:
			rows = append(rows, &row{subject: s, given: points, why: "as even as Berth"})
		}
	}
	return rows, notes, nil
}

// raceLookups measures all rows at one fleet size in one race.
func raceLookups(rows []*row, n int, p plan, keys []string, tell func(string, ...any)) error {
	var tables []table
	var racing []*row
	for _, r := range rows {
		tell("lookups at %d members: building %s", n, r.name)
		var t table
		var took series
		err := took.time(func() (err error) {
			t, err = r.subject.build(memberNames(0, n), r.given, patience())
			return err
		})
		if errors.Is(err, errTooSlow) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s at %d members: %w", r.name, n, err)
		}
		defer t.stop()
		if n == 1000 {
			r.large = took
		}
		tables, racing = append(tables, t), append(racing, r)
	}
	ratios, abreast, allocs := lookups(tables, p.rounds, keys)
	for i, r := range racing {
		if r.lookup == nil {
			r.lookup, r.abreast = make(map[int]float64), make(map[int]float64)
		}
		r.lookup[n], r.abreast[n] = ratios[i], abreast[i]
		r.allocs = max(r.allocs, allocs[i])
	}
	return nil
}
