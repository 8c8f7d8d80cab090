// Package kvsim simulates the KV cache of one inference instance: which blocks
// of which prompts it still holds, and nothing of their content.
//
// A block can be reused only when all blocks ahead of it can, so a hit counts
// the leading blocks of a prompt that are present. The least recently used
// block is evicted, and within one prompt the last block first, as engines do:
// a head without its tail is worth something, a tail without its head is not.
//
// The cache is deterministic and its cost per block is constant. It agrees
// with a model that keeps a plain list (TestCacheAgreesWithModel).
package kvsim

import (
	"container/list"
	"slices"
)

// Cache is the KV cache of one instance. It is not safe for concurrent use.
type Cache struct {
	capacity int
	recent   *list.List // of *block, the most recently used first
	index    map[uint64]*list.Element
}

type block struct {
	id        uint64
	prewarmed bool // built ahead of a request and not used by one yet
}

// Hit says what a request found in the cache.
type Hit struct {
	Blocks    int // leading blocks present
	Prewarmed int // those of them that a prewarm built and no request used before
}

// New returns an empty cache that holds at most capacity blocks.
func New(capacity int) *Cache {
	return &Cache{capacity: capacity, recent: list.New(), index: make(map[uint64]*list.Element)}
}

// Serve answers a request whose prompt has these blocks: it returns what was
// there and leaves all of them in the cache, so far as they fit.
func (c *Cache) Serve(blocks []uint64) Hit {
	hit := Hit{Blocks: c.leading(blocks)}
	for i, id := range slices.Backward(blocks) {
		b := c.touch(id)
		if b.prewarmed && i < hit.Blocks {
			hit.Prewarmed++
		}
		b.prewarmed = false
	}
	c.evict()
	return hit
}

// Prewarm builds a prompt with these blocks ahead of its request and returns
// how many it had to compute: all that follow the leading ones present.
func (c *Cache) Prewarm(blocks []uint64) (computed int) {
	present := c.leading(blocks)
	for i, id := range slices.Backward(blocks) {
		b := c.touch(id)
		b.prewarmed = b.prewarmed || i >= present
	}
	c.evict()
	return len(blocks) - present
}

// Clear drops every block, as the death of the instance does.
func (c *Cache) Clear() {
	c.recent.Init()
	clear(c.index)
}

// Len returns how many blocks the cache holds.
func (c *Cache) Len() int { return c.recent.Len() }

func (c *Cache) leading(blocks []uint64) int {
	for i, id := range blocks {
		if _, present := c.index[id]; !present {
			return i
		}
	}
	return len(blocks)
}

// touch makes a block the most recently used, adding it if it is absent. The
// cache may be over its capacity until evict: evicting at each step could take
// blocks of the very prompt that is being served.
func (c *Cache) touch(id uint64) *block {
	if e, present := c.index[id]; present {
		c.recent.MoveToFront(e)
		return e.Value.(*block)
	}
	b := &block{id: id}
	c.index[id] = c.recent.PushFront(b)
	return b
}

func (c *Cache) evict() {
	for c.recent.Len() > c.capacity {
		oldest := c.recent.Remove(c.recent.Back()).(*block)
		delete(c.index, oldest.id)
	}
}
