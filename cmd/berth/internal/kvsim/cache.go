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

import "slices"

// Cache is the KV cache of one instance. It is not safe for concurrent use.
type Cache struct {
	capacity int
	index    map[uint64]int32 // id → place in blocks
	// blocks form a ring in the order of their last use. The first one is no
	// block: its newer neighbour is the oldest block, its older one the newest.
	// Places instead of pointers leave the garbage collector nothing to follow.
	blocks []block
	free   []int32 // places of evicted blocks
	found  []int32 // scratch: places of a prompt's leading blocks
}

type block struct {
	id           uint64
	newer, older int32
	prewarmed    bool // built ahead of a request and not used by one yet
}

// Hit says what a request found in the cache.
type Hit struct {
	Blocks    int // leading blocks present
	Prewarmed int // those of them that a prewarm built and no request used before
}

// New returns an empty cache that holds at most capacity blocks.
func New(capacity int) *Cache {
	return &Cache{capacity: capacity, index: make(map[uint64]int32), blocks: make([]block, 1)}
}

// Serve answers a request whose prompt has these blocks: it returns what was
// there and leaves all of them in the cache, so far as they fit.
func (c *Cache) Serve(blocks []uint64) Hit {
	hit := Hit{Blocks: c.leading(blocks)}
	for i, id := range slices.Backward(blocks) {
		b := c.touch(i, id)
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
		b := c.touch(i, id)
		b.prewarmed = b.prewarmed || i >= present
	}
	c.evict()
	return len(blocks) - present
}

// Clear drops every block, as the death of the instance does.
func (c *Cache) Clear() {
	clear(c.index)
	c.blocks, c.free = make([]block, 1), nil
}

// Len returns how many blocks the cache holds.
func (c *Cache) Len() int { return len(c.index) }

// leading counts the leading blocks that are present and notes their places.
func (c *Cache) leading(blocks []uint64) int {
	c.found = c.found[:0]
	for _, id := range blocks {
		at, present := c.index[id]
		if !present {
			break
		}
		c.found = append(c.found, at)
	}
	return len(c.found)
}

// touch makes the i-th block of a prompt the most recently used, adding it if
// it is absent. The cache may be over its capacity until evict: evicting at
// each step could take blocks of the very prompt that is being served.
func (c *Cache) touch(i int, id uint64) *block {
	at, present := int32(0), i < len(c.found)
	if present {
		at = c.found[i]
	} else {
		at, present = c.index[id]
	}
	if present {
		c.unlink(at)
	} else {
		at = c.place()
		c.blocks[at] = block{id: id}
		c.index[id] = at
	}
	b, ends := &c.blocks[at], &c.blocks[0]
	b.older, b.newer = ends.older, 0
	c.blocks[ends.older].newer = at
	ends.older = at
	return b
}

// place finds room for one more block.
func (c *Cache) place() int32 {
	if n := len(c.free); n > 0 {
		at := c.free[n-1]
		c.free = c.free[:n-1]
		return at
	}
	c.blocks = append(c.blocks, block{})
	return int32(len(c.blocks) - 1)
}

func (c *Cache) unlink(at int32) {
	b := &c.blocks[at]
	c.blocks[b.older].newer = b.newer
	c.blocks[b.newer].older = b.older
}

func (c *Cache) evict() {
	for len(c.index) > c.capacity {
		oldest := c.blocks[0].newer
		c.unlink(oldest)
		delete(c.index, c.blocks[oldest].id)
		c.free = append(c.free, oldest)
	}
}
