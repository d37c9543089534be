// Package sqlite reads the files of an SQLite database as far as a copy of it without secrets
// needs: it computes, opens nothing, and knows no SQL.
//
//	database, write-ahead log ──Open──▶ pages ──Mask──▶ Bytes: one file, which needs no log
//
// A program may have written the files to mislead us. Whatever they contain, each page is visited
// once at most, nothing outside of a page is read, and what is not a sound database is an error.
package sqlite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

const magic = "SQLite format 3\x00"

// Is reports whether content is that of a database.
func Is(content []byte) bool { return bytes.HasPrefix(content, []byte(magic)) }

// A Database is a consistent state of one: what its last transaction has left.
type Database struct {
	size   int      // of a page
	usable int      // of each page
	pages  [][]byte // the first one is at 0, and number 1
	seen   []bool   // while the pages are visited
}

// ErrCorrupt: the content is not that of a database.
var ErrCorrupt = errors.New("it is a database that is not sound")

// headerLen is the length of the database's own header, in its first page.
const headerLen = 100

// Open reads a database and its write-ahead log, which may be empty. It keeps neither.
func Open(content, log []byte) (*Database, error) {
	if !Is(content) || len(content) < headerLen {
		return nil, ErrCorrupt
	}
	size := int(binary.BigEndian.Uint16(content[16:]))
	if size == 1 {
		size = 1 << 16
	}
	if size < 512 || size&(size-1) != 0 || len(content)%size != 0 {
		return nil, ErrCorrupt
	}
	d := &Database{size: size, usable: size - int(content[20])}
	if d.usable < 480 {
		return nil, ErrCorrupt
	}
	for page := range len(content) / size {
		d.pages = append(d.pages, bytes.Clone(content[page*size:(page+1)*size]))
	}
	if err := d.replay(log); err != nil {
		return nil, err
	}
	if int(d.pages[0][20]) != size-d.usable { // nothing changes it
		return nil, ErrCorrupt
	}
	return d, nil
}

// maxUnwritten bounds the pages that a transaction adds and does not write, because they are free.
const maxUnwritten = 1024

// Lengths in a write-ahead log.
const (
	LogHeader = 32
	frameLen  = 24
)

// replay puts the pages of a write-ahead log in their places, up to its last complete transaction.
func (d *Database) replay(log []byte) error {
	if len(log) < LogHeader {
		return nil // it is empty, or its first transaction is not complete
	}
	order := binary.ByteOrder(binary.LittleEndian)
	kind := binary.BigEndian.Uint32(log)
	if kind&1 != 0 {
		order = binary.BigEndian
	}
	sum := checksum{order: order}
	sum.add(log[:24])
	if kind&^1 != 0x377f0682 || int(binary.BigEndian.Uint32(log[8:])) != d.size || !sum.is(log[24:]) {
		return nil // as above
	}
	salts := log[16:24]
	changed := map[uint32][]byte{}
	for log = log[LogHeader:]; len(log) >= frameLen+d.size; log = log[frameLen+d.size:] {
		head, page := log[:frameLen], log[frameLen:frameLen+d.size]
		sum.add(head[:8])
		sum.add(page)
		number, last := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		if !bytes.Equal(head[8:16], salts) || !sum.is(head[16:]) || number == 0 {
			return nil // what an earlier use of the log has left, or a transaction that was cut
		}
		changed[number] = page
		if last == 0 {
			continue
		}
		if err := d.commit(changed, int(last)); err != nil {
			return err
		}
		clear(changed)
	}
	return nil
}

// commit changes pages, of which there are so many afterwards.
func (d *Database) commit(changed map[uint32][]byte, count int) error {
	before := len(d.pages)
	if count > before+len(changed)+maxUnwritten {
		return ErrCorrupt
	}
	for len(d.pages) < count {
		d.pages = append(d.pages, nil)
	}
	d.pages = d.pages[:count]
	for number, page := range changed {
		if int(number) <= count {
			d.pages[number-1] = bytes.Clone(page)
		}
	}
	for i, page := range d.pages {
		if page == nil {
			d.pages[i] = make([]byte, d.size)
		}
	}
	return nil
}

// A checksum is that of a write-ahead log.
type checksum struct {
	order  binary.ByteOrder
	first  uint32
	second uint32
}

func (c *checksum) add(p []byte) {
	for ; len(p) >= 8; p = p[8:] {
		c.first += c.order.Uint32(p) + c.second
		c.second += c.order.Uint32(p[4:]) + c.first
	}
}

func (c *checksum) is(p []byte) bool {
	return binary.BigEndian.Uint32(p) == c.first && binary.BigEndian.Uint32(p[4:]) == c.second
}

// Bytes is the database as one file.
func (d *Database) Bytes() []byte { return bytes.Join(d.pages, nil) }

// page is the content of a page that was not visited yet.
func (d *Database) page(number uint32) ([]byte, error) {
	if number == 0 || int64(number) > int64(len(d.pages)) {
		return nil, fmt.Errorf("%w: there is no page %d", ErrCorrupt, number)
	}
	if d.seen[number-1] {
		return nil, fmt.Errorf("%w: page %d is used twice", ErrCorrupt, number)
	}
	d.seen[number-1] = true
	return d.pages[number-1], nil
}
