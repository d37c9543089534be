package sqlite

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// Mask passes what is stored in each row of each table and index to hide, which returns it with the
// same length, and stores what comes back. It erases what is stored nowhere: what deleted rows
// have left.
func (d *Database) Mask(hide func([]byte) []byte) error {
	d.seen = make([]bool, len(d.pages))
	m := masker{Database: d, hide: hide}
	roots := []uint32{1} // that of the table of all tables, which names the others
	for len(roots) > 0 {
		m.row = nil
		if roots[0] == 1 {
			m.row = func(record []byte) {
				if root, ok := rootOf(record); ok && root > 1 {
					roots = append(roots, root)
				}
			}
		}
		if err := m.tree(roots[0]); err != nil {
			return err
		}
		roots = roots[1:]
	}
	return m.eraseFree()
}

// A masker visits the trees of a database.
type masker struct {
	*Database
	hide func([]byte) []byte
	row  func(record []byte) // is told each row before it is masked; may be nil
}

// Kinds of pages of trees.
const (
	indexInner = 2
	tableInner = 5
	indexLeaf  = 10
	tableLeaf  = 13
)

// tree masks all that is below a page.
func (m *masker) tree(root uint32) error {
	for todo := []uint32{root}; len(todo) > 0; {
		number := todo[len(todo)-1]
		below, err := m.treePage(number)
		if err != nil {
			return fmt.Errorf("page %d: %w", number, err)
		}
		todo = append(todo[:len(todo)-1], below...)
	}
	return nil
}

// treePage masks one page and the pages on which its rows go on, and returns the pages below it.
func (m *masker) treePage(number uint32) (below []uint32, err error) {
	page, err := m.page(number)
	if err != nil {
		return nil, err
	}
	at := 0
	if number == 1 {
		at = headerLen
	}
	kind, cells, head := page[at], int(binary.BigEndian.Uint16(page[at+3:])), 8
	if kind == indexInner || kind == tableInner {
		head = 12
		below = append(below, binary.BigEndian.Uint32(page[at+8:]))
	} else if kind != indexLeaf && kind != tableLeaf {
		return nil, ErrCorrupt
	}
	live := []span{{0, at + head + 2*cells}}
	if live[0].end > m.usable {
		return nil, ErrCorrupt
	}
	for n := range cells {
		start := int(binary.BigEndian.Uint16(page[at+head+2*n:]))
		c, err := m.cell(page, start, kind)
		if err != nil {
			return nil, err
		}
		if c.child > 0 {
			below = append(below, c.child)
		}
		live = append(live, span{start, c.end})
	}
	free, err := m.freeBlocks(page, at)
	if err != nil {
		return nil, err
	}
	erase(page[:m.usable], append(live, free...))
	return below, nil
}

// freeBlocks are the headers of the free pieces of a page of a tree, which are kept.
func (m *masker) freeBlocks(page []byte, at int) (kept []span, err error) {
	for next := int(binary.BigEndian.Uint16(page[at+1:])); next > 0; {
		if next+4 > m.usable || len(kept) > m.usable/4 {
			return nil, ErrCorrupt
		}
		kept = append(kept, span{next, next + 4})
		next = int(binary.BigEndian.Uint16(page[next:]))
	}
	return kept, nil
}

// A cell is one row, or the way to one.
type cell struct {
	end   int    // in its page
	child uint32 // the page below it; 0: none
}

func (m *masker) cell(page []byte, start int, kind byte) (c cell, err error) {
	r := reader{p: page[:m.usable], at: start}
	if kind == indexInner || kind == tableInner {
		c.child = r.number()
	}
	if kind == tableInner {
		r.varint() // the number of the row
		c.end = r.at
		return c, r.err
	}
	length := r.varint()
	if kind == tableLeaf {
		r.varint() // as above
	}
	if r.err != nil || length > uint64(len(m.pages)*m.size) {
		return c, ErrCorrupt
	}
	local := m.local(int(length), kind)
	parts := [][]byte{r.bytes(local)}
	if local < int(length) && r.err == nil {
		more, err := m.overflow(r.number(), int(length)-local)
		if err != nil {
			return c, err
		}
		parts = append(parts, more...)
	}
	if r.err == nil {
		m.mask(parts)
	}
	c.end = min(max(r.at, start+4), m.usable)
	return c, r.err
}

// local is how much of a row is in its own page.
func (m *masker) local(length int, kind byte) int {
	most := (m.usable-12)*64/255 - 23
	if kind == tableLeaf {
		most = m.usable - 35
	}
	if length <= most {
		return length
	}
	least := (m.usable-12)*32/255 - 23
	if part := least + (length-least)%(m.usable-4); part <= most {
		return part
	}
	return least
}

// overflow is the rest of a row, on pages of its own.
func (m *masker) overflow(number uint32, left int) (parts [][]byte, err error) {
	for left > 0 {
		page, err := m.page(number)
		if err != nil {
			return nil, err
		}
		part := page[4:min(m.usable, 4+left)]
		clear(page[4+len(part):])
		parts = append(parts, part)
		left -= len(part)
		number = binary.BigEndian.Uint32(page)
	}
	return parts, nil
}

// mask masks the values of a row, which is in several parts, and leaves alone what says which kinds
// of values they are.
func (m *masker) mask(parts [][]byte) {
	whole := parts[0]
	if len(parts) > 1 {
		whole = slices.Concat(parts...)
	}
	if m.row != nil {
		m.row(whole)
	}
	r := reader{p: whole}
	head := r.varint()
	if r.err != nil || head > uint64(len(whole)) {
		head = 0
	}
	masked := slices.Concat(whole[:head], m.hide(whole[head:]))
	for _, part := range parts {
		masked = masked[copy(part, masked):]
	}
}

// rootOf is the root of a table or an index, as its row in the table of all tables says.
func rootOf(record []byte) (uint32, bool) {
	r := reader{p: record}
	end := r.varint()
	if end > uint64(len(record)) {
		return 0, false
	}
	at := end
	for column := range 4 {
		kind := r.varint()
		length := lengthOf(kind)
		if r.err != nil || uint64(r.at) > end || length > uint64(len(record)) || at+length > uint64(len(record)) {
			return 0, false
		}
		if column < 3 {
			at += length
			continue
		}
		if kind == 9 { // the number 1, without any byte
			return 1, true
		}
		if kind < 1 || kind > 4 {
			return 0, false
		}
		var root uint64
		for _, b := range record[at : at+length] {
			root = root<<8 | uint64(b)
		}
		return uint32(root), true //nolint:gosec // of at most four bytes
	}
	return 0, false
}

// lengthOf is the length of a value of a kind.
func lengthOf(kind uint64) uint64 {
	if kind >= 12 {
		return (kind - 12) / 2
	}
	return []uint64{0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0}[kind]
}

// eraseFree erases the pages that hold nothing.
func (m *masker) eraseFree() error {
	first := m.pages[0]
	for next := binary.BigEndian.Uint32(first[32:]); next > 0; {
		page, err := m.page(next)
		if err != nil {
			return fmt.Errorf("free pages: %w", err)
		}
		// The numbers of other free pages, which are erased below.
		count := int64(binary.BigEndian.Uint32(page[4:]))
		if 8+4*count > int64(m.usable) {
			return ErrCorrupt
		}
		clear(page[8+4*count:])
		next = binary.BigEndian.Uint32(page)
	}
	everyPointerMap := m.usable/5 + 1
	vacuums := binary.BigEndian.Uint32(first[52:]) > 0
	for i, seen := range m.seen {
		if pointers := vacuums && i > 0 && (i-1)%everyPointerMap == 0; !seen && !pointers {
			clear(m.pages[i])
		}
	}
	return nil
}

// A span is a part of a page.
type span struct{ start, end int }

// erase erases what is in none of the spans.
func erase(page []byte, kept []span) {
	slices.SortFunc(kept, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	done := 0
	for _, s := range kept {
		if s.start > done {
			clear(page[done:s.start])
		}
		done = max(done, s.end)
	}
	clear(page[min(done, len(page)):])
}

// A reader reads what a page or a row begins with.
type reader struct {
	p   []byte
	at  int
	err error
}

func (r *reader) bytes(n int) []byte {
	if r.err != nil || r.at < 0 || n < 0 || n > len(r.p)-r.at {
		r.err = ErrCorrupt
		return nil
	}
	r.at += n
	return r.p[r.at-n : r.at]
}

func (r *reader) number() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// varint reads a number of one to nine bytes.
func (r *reader) varint() (n uint64) {
	for i := range 9 {
		b := r.bytes(1)
		if b == nil {
			return 0
		}
		if i == 8 {
			return n<<8 | uint64(b[0])
		}
		n = n<<7 | uint64(b[0]&0x7f)
		if b[0] < 0x80 {
			break
		}
	}
	return n
}
