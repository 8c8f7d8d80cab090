package roster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"

	"berth/statestore"
)

// Answer is what a store has to say to who knows an image already.
type Answer struct {
	Now              statestore.Millis
	Version, Members uint64
	// Table is all rows, in any order; nil when Version is that of the image.
	Table []byte
	// Records and Policies are JSON by id and by pool; nil when Members is that of
	// the image.
	Records, Policies map[string]string
}

// Image is the registry as it was read, which nobody changes any more.
type Image struct {
	view    statestore.FleetView
	members []statestore.Instance // as their records have them, in order of ids
	records map[string]string
	index   map[string]int
}

// Cache holds the last image of a store. The zero value holds none.
type Cache struct{ last atomic.Pointer[Image] }

// Last is the image that was read last, nil for none.
func (c *Cache) Last() *Image { return c.last.Load() }

// Take makes the image that follows known, which the store was told of, and
// returns its view.
func (c *Cache) Take(known *Image, a Answer) (statestore.FleetView, error) {
	next, err := known.after(a)
	if err != nil {
		return statestore.FleetView{}, err
	}
	c.last.Store(next)
	view := next.view
	view.Now = a.Now
	return view, nil
}

// Has reports whether the image is of that version.
func (i *Image) Has(version uint64) bool { return i != nil && i.view.Version == version }

// HasMembers reports whether the image has the members of that version.
func (i *Image) HasMembers(members uint64) bool { return i != nil && i.view.Members == members }

// Versions are those of the image, as text; none without one.
func (i *Image) Versions() (version, members string) {
	if i == nil {
		return "", ""
	}
	return strconv.FormatUint(i.view.Version, 10), strconv.FormatUint(i.view.Members, 10)
}

// Member finds a member as its record had it when the members had this version.
func (i *Image) Member(members uint64, id string) (statestore.Instance, bool) {
	if i == nil || i.view.Members != members {
		return statestore.Instance{}, false
	}
	at, ok := i.index[id]
	if !ok {
		return statestore.Instance{}, false
	}
	return i.members[at], true
}

// after is the image that a makes of i.
func (i *Image) after(a Answer) (*Image, error) {
	if i != nil && a.Table == nil {
		return i, nil
	}
	next := new(Image)
	if i == nil {
		i = next
	}
	next.members, next.records, next.index = i.members, i.records, i.index
	next.view = statestore.FleetView{Version: a.Version, Members: a.Members, Policies: i.view.Policies}
	if a.Records != nil {
		if err := next.enrol(i, a); err != nil {
			return nil, err
		}
	}
	next.view.Instances = slices.Clone(next.members)
	if err := next.load(a.Table); err != nil {
		return nil, err
	}
	return next, nil
}

// enrol decodes the records that are not as prev has them.
func (i *Image) enrol(prev *Image, a Answer) error {
	i.records = a.Records
	i.members = make([]statestore.Instance, 0, len(a.Records))
	i.index = make(map[string]int, len(a.Records))
	for _, id := range slices.Sorted(maps.Keys(a.Records)) {
		var inst statestore.Instance
		if at, ok := prev.index[id]; ok && prev.records[id] == a.Records[id] {
			inst = prev.members[at]
		} else if err := json.Unmarshal([]byte(a.Records[id]), &inst); err != nil {
			return fmt.Errorf("instances: %w: %w", err, ErrDamaged)
		}
		i.index[id] = len(i.members)
		i.members = append(i.members, inst)
	}
	i.view.Policies = make(map[string]statestore.Policy, len(a.Policies))
	for pool, text := range a.Policies {
		var p statestore.Policy
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return fmt.Errorf("policies: %w: %w", err, ErrDamaged)
		}
		i.view.Policies[pool] = p
	}
	return nil
}

// load gives the instances of the view their rows. A row of another boot says
// nothing.
func (i *Image) load(table []byte) error {
	for len(table) > 0 {
		instance, boot, told, err := names(table)
		if err != nil {
			return err
		}
		var last statestore.Heartbeat
		rest, err := readTold(told, &last)
		if err != nil {
			return err
		}
		if at, ok := i.index[string(instance)]; ok && i.view.Instances[at].Incarnation == string(boot) {
			inst := &i.view.Instances[at]
			inst.Beats, inst.BeatAt = counted(table)
			inst.LastBeat = last
		}
		table = rest
	}
	return nil
}
