package kvsim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestCacheCountsLeadingBlocks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		capacity int
		before   [][]uint64
		prompt   []uint64
		want     int
	}{
		{"cold", 8, nil, []uint64{1, 2}, 0},
		{"the same prompt", 8, [][]uint64{{1, 2}}, []uint64{1, 2}, 2},
		{"a longer prompt", 8, [][]uint64{{1, 2}}, []uint64{1, 2, 3}, 2},
		{"a gap ends the hit", 8, [][]uint64{{1, 2, 3}}, []uint64{1, 9, 3}, 1},
		{"a tail alone is nothing", 8, [][]uint64{{1, 2, 3}}, []uint64{9, 2, 3}, 0},
		{"the oldest prompt goes first", 4, [][]uint64{{1, 2}, {3, 4}, {5, 6}}, []uint64{1, 2}, 0},
		{"use keeps a prompt", 4, [][]uint64{{1, 2}, {3, 4}, {1, 2}, {5, 6}}, []uint64{1, 2}, 2},
		{"a prompt loses its tail first", 4, [][]uint64{{1, 2, 3}, {7, 8}}, []uint64{1, 2, 3}, 2},
		{"a prompt beyond the capacity leaves its head", 2, [][]uint64{{1, 2, 3, 4}}, []uint64{1, 2, 3, 4}, 2},
		{"its own head survives serving a prompt", 2, [][]uint64{{1, 2}}, []uint64{1, 2, 3}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := New(tc.capacity)
			for _, prompt := range tc.before {
				c.Serve(prompt)
			}
			if got := c.Serve(tc.prompt).Blocks; got != tc.want {
				t.Errorf("%d leading blocks present, want %d", got, tc.want)
			}
		})
	}
}

func TestPrewarmedBlocksAreUsedOnce(t *testing.T) {
	t.Parallel()
	c := New(8)
	c.Serve([]uint64{1, 2})
	if got := c.Prewarm([]uint64{1, 2, 3, 4}); got != 2 {
		t.Errorf("prewarm computed %d blocks, want 2: the others were present", got)
	}
	if got := c.Prewarm([]uint64{1, 2, 3, 4}); got != 0 {
		t.Errorf("a second prewarm computed %d blocks, want 0", got)
	}
	if got, want := c.Serve([]uint64{1, 2, 3}), (Hit{Blocks: 3, Prewarmed: 1}); got != want {
		t.Errorf("first request finds %+v, want %+v", got, want)
	}
	if got, want := c.Serve([]uint64{1, 2, 3, 4}), (Hit{Blocks: 4, Prewarmed: 1}); got != want {
		t.Errorf("second request finds %+v, want %+v", got, want)
	}
	c.Prewarm([]uint64{5, 6})
	c.Clear()
	if got := c.Serve([]uint64{5, 6}); got != (Hit{}) || c.Len() != 2 {
		t.Errorf("after a death a request finds %+v and leaves %d blocks, want nothing and 2", got, c.Len())
	}
}

// model is the cache as one would write it without regard to cost: the blocks
// in the order of their last use, the latest last.
type model struct {
	capacity int
	order    []uint64
	fresh    map[uint64]bool // prewarmed and not used
}

func (m *model) leading(prompt []uint64) int {
	n := 0
	for n < len(prompt) && slices.Contains(m.order, prompt[n]) {
		n++
	}
	return n
}

func (m *model) use(prompt []uint64) {
	for i := len(prompt) - 1; i >= 0; i-- {
		m.order = slices.DeleteFunc(m.order, func(id uint64) bool { return id == prompt[i] })
		m.order = append(m.order, prompt[i])
	}
	m.order = m.order[max(0, len(m.order)-m.capacity):]
	for id := range m.fresh {
		if !slices.Contains(m.order, id) {
			delete(m.fresh, id)
		}
	}
}

func (m *model) serve(prompt []uint64) Hit {
	hit := Hit{Blocks: m.leading(prompt)}
	for i, id := range prompt {
		if i < hit.Blocks && m.fresh[id] {
			hit.Prewarmed++
		}
		delete(m.fresh, id)
	}
	m.use(prompt)
	return hit
}

func (m *model) prewarm(prompt []uint64) int {
	present := m.leading(prompt)
	for _, id := range prompt[present:] {
		m.fresh[id] = true
	}
	m.use(prompt)
	return len(prompt) - present
}

func TestCacheAgreesWithModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 12).Draw(t, "capacity")
		c, m := New(capacity), &model{capacity: capacity, fresh: map[uint64]bool{}}
		prompts := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 20), 0, 15, rapid.ID[uint64])
		t.Repeat(map[string]func(*rapid.T){
			"serve": func(t *rapid.T) {
				prompt := prompts.Draw(t, "prompt")
				if got, want := c.Serve(prompt), m.serve(prompt); got != want {
					t.Fatalf("serve %v finds %+v, want %+v", prompt, got, want)
				}
			},
			"prewarm": func(t *rapid.T) {
				prompt := prompts.Draw(t, "prompt")
				if got, want := c.Prewarm(prompt), m.prewarm(prompt); got != want {
					t.Fatalf("prewarm %v computes %d, want %d", prompt, got, want)
				}
			},
			"clear": func(*rapid.T) {
				c.Clear()
				m.order = nil
				clear(m.fresh)
			},
			"": func(t *rapid.T) {
				if c.Len() != len(m.order) || c.Len() > capacity {
					t.Fatalf("%d blocks, want %d, at most %d", c.Len(), len(m.order), capacity)
				}
			},
		})
	})
}

// BenchmarkServe shows that the cost per block does not depend on the capacity.
func BenchmarkServe(b *testing.B) {
	for name, capacity := range map[string]int{"1000": 1_000, "16000": 16_000} {
		b.Run(name, func(b *testing.B) {
			c, prompt := New(capacity), make([]uint64, 24)
			next := uint64(0)
			for b.Loop() {
				for i := range prompt {
					next++
					prompt[i] = next % (2 * uint64(capacity))
				}
				c.Serve(prompt)
			}
		})
	}
}
