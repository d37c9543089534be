package catalog

import (
	"bytes"
	"iter"
	"slices"

	"github.com/google/uuid"
)

// An item is one job in an [Index]. There is one for each job that is kept, so it is small,
// and has nothing that points elsewhere.
type item struct {
	id        uuid.UUID
	submitted int64  // in nanoseconds
	expires   uint32 // in seconds, when the broker removes the record; 0: it does not
	group     uint32
}

// blockItems is how many items a block of an [order] holds at most.
const blockItems = 512

// An order has the items of all jobs, sorted by id: in the order of their submission. It is
// a list of sorted blocks, so that an item is found, inserted and removed at the cost of one
// block.
type order struct {
	blocks [][]item
	items  int
}

// place returns where an id is, or would be inserted. It is never in an empty block.
func (o *order) place(id uuid.UUID) (block, at int, found bool) {
	block, _ = slices.BinarySearchFunc(o.blocks, id, func(b []item, id uuid.UUID) int {
		return bytes.Compare(b[len(b)-1].id[:], id[:])
	})
	if block == len(o.blocks) {
		if block == 0 {
			return 0, 0, false
		}
		block--
	}
	at, found = slices.BinarySearchFunc(o.blocks[block], id, func(i item, id uuid.UUID) int {
		return bytes.Compare(i.id[:], id[:])
	})
	return block, at, found
}

// get returns the item of an id, to be read or changed; nil: there is none.
func (o *order) get(id uuid.UUID) *item {
	block, at, found := o.place(id)
	if !found {
		return nil
	}
	return &o.blocks[block][at]
}

// insert adds an item whose id is not there yet.
func (o *order) insert(i item) {
	o.items++
	block, at, _ := o.place(i.id)
	switch {
	case len(o.blocks) == 0:
		o.blocks = append(o.blocks, append(make([]item, 0, blockItems), i))
		return
	case len(o.blocks[block]) < blockItems:
		o.blocks[block] = slices.Insert(o.blocks[block], at, i)
		return
	case block == len(o.blocks)-1 && at == blockItems: // as a rule: jobs come in their order
		o.blocks = append(o.blocks, append(make([]item, 0, blockItems), i))
		return
	}
	full := o.blocks[block]
	upper := append(make([]item, 0, blockItems), full[blockItems/2:]...)
	o.blocks[block] = full[:blockItems/2]
	o.blocks = slices.Insert(o.blocks, block+1, upper)
	if at > blockItems/2 {
		block, at = block+1, at-blockItems/2
	}
	o.blocks[block] = slices.Insert(o.blocks[block], at, i)
}

// remove removes the item of an id.
func (o *order) remove(id uuid.UUID) {
	block, at, found := o.place(id)
	if !found {
		return
	}
	o.items--
	if o.blocks[block] = slices.Delete(o.blocks[block], at, at+1); len(o.blocks[block]) == 0 {
		o.blocks = slices.Delete(o.blocks, block, block+1)
	}
}

// from yields the items behind an id, or with newest those before it, the newest first. The
// zero id is where the walk begins.
func (o *order) from(id uuid.UUID, newest bool) iter.Seq[item] {
	return func(yield func(item) bool) {
		if len(o.blocks) == 0 {
			return
		}
		block, at, found := o.place(id)
		switch {
		case !newest && found:
			at++
		case newest && id == uuid.Nil:
			block = len(o.blocks) - 1
			at = len(o.blocks[block])
		}
		for newest && block >= 0 {
			for at--; at >= 0; at-- {
				if !yield(o.blocks[block][at]) {
					return
				}
			}
			if block--; block >= 0 {
				at = len(o.blocks[block])
			}
		}
		for ; !newest && block < len(o.blocks); block, at = block+1, 0 {
			for _, i := range o.blocks[block][at:] {
				if !yield(i) {
					return
				}
			}
		}
	}
}
