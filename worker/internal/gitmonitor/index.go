package gitmonitor

import (
	"bytes"
	"errors"
)

var errIndex = errors.New("an index of a kind that is not known")

// idLen is the length of an object's name in an index: repositories with SHA-256 have no
// monitor.
const idLen = 20

// An indexReader reads the names of an index, see gitformat-index(5).
type indexReader struct {
	version, left uint32
	at            []byte
	name          []byte // of the last entry; nil after the end
}

func newIndexReader(index []byte) (*indexReader, error) {
	if len(index) < 12 || string(index[:4]) != "DIRC" {
		return nil, errIndex
	}
	r := &indexReader{version: number(index[4:]), left: number(index[8:]), at: index[12:], name: []byte{}}
	if r.version < 2 || r.version > 4 {
		return nil, errIndex
	}
	return r, nil
}

// next reads one more name. A name is valid until the next one.
func (r *indexReader) next() error {
	if r.left == 0 {
		r.name = nil
		return r.complete()
	}
	r.left--
	begin := 40 + idLen + 2
	if len(r.at) < begin {
		return errIndex
	}
	if r.at[begin-2]&0x40 != 0 && r.version > 2 { // two bytes more of flags
		begin += 2
	}
	kept := 0
	if r.version == 4 { // a name begins with a part of the one before
		drop, n := offset(r.at[min(begin, len(r.at)):])
		if n == 0 || drop > len(r.name) {
			return errIndex
		}
		kept, begin = len(r.name)-drop, begin+n
	}
	length := bytes.IndexByte(r.at[min(begin, len(r.at)):], 0)
	if length < 0 {
		return errIndex
	}
	r.name = append(r.name[:kept], r.at[begin:begin+length]...)
	size := begin + length + 1
	if r.version < 4 {
		size = (size + 7) &^ 7
	}
	if len(r.at) < size {
		return errIndex
	}
	r.at = r.at[size:]
	return nil
}

// complete refuses an index of which entries are in another file.
func (r *indexReader) complete() error {
	rest := r.at
	for len(rest) > idLen {
		size := int(number(rest[4:]))
		if string(rest[:4]) == "link" || size > len(rest)-8 {
			return errIndex
		}
		rest = rest[8+size:]
	}
	if len(rest) != idLen { // of the checksum
		return errIndex
	}
	return nil
}

// onlyInFirst calls each with the names of an index that another one does not have.
func onlyInFirst(first, second []byte, each func(name string) error) error {
	a, err := newIndexReader(first)
	if err != nil {
		return err
	}
	b, err := newIndexReader(second)
	if err != nil {
		return err
	}
	if err := b.next(); err != nil {
		return err
	}
	for {
		if err := a.next(); err != nil || a.name == nil {
			return err
		}
		for b.name != nil && bytes.Compare(b.name, a.name) < 0 {
			if err := b.next(); err != nil {
				return err
			}
		}
		if b.name == nil || !bytes.Equal(a.name, b.name) {
			if err := each(string(a.name)); err != nil {
				return err
			}
		}
	}
}

// offset reads a number as git writes it in version 4 and in packs. n is 0 if there is none.
func offset(b []byte) (value, n int) {
	for i, c := range b[:min(len(b), 5)] {
		value = value<<7 | int(c&0x7f)
		if c&0x80 == 0 {
			return value, i + 1
		}
		value++
	}
	return 0, 0
}

func number(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
