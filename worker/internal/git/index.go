package git

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"slices"
	"strings"
	"time"
)

// Modes of entries, as git writes them.
const (
	ModeFile   = 0o100644
	ModeExec   = 0o100755
	ModeLink   = 0o120000
	ModeModule = 0o160000 // a submodule: a commit of another repository
)

// An Entry is one line of an index: a path, its content, and the file's Stat when git
// wrote or read it.
type Entry struct {
	Path   string
	Mode   uint32
	Object string
	Stat   Stat
}

// A Stat tells whether a file has been changed since. Only the kernel sets CTime, so a
// file with the same Stat has the same content.
type Stat struct {
	CTime, MTime time.Time
	Inode, Size  uint32 // the low 32 bits
}

// ReadIndex reads an index of version 2 that our own git wrote, and the time at which
// git wrote it.
func ReadIndex(path string) (entries []Entry, written time.Time, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	if entries, _, err = parse(data); err != nil {
		return nil, time.Time{}, fmt.Errorf("index %s: %w", path, err)
	}
	return entries, info.ModTime(), nil
}

// parse reads an index whose objects' names have oid bytes.
func parse(data []byte) (entries []Entry, oid int, err error) {
	for _, oid = range []int{sha1.Size, sha256.Size} {
		if entries, err = parseIndex(data, oid); err == nil {
			break
		}
	}
	return entries, oid, err
}

// entrySize is that of an entry, which is padded with one to eight NULs to a multiple of eight.
func entrySize(oid, path int) int { return (40 + oid + 2 + path + 8) &^ 7 }

// newSum is the hash that names objects in so many bytes.
func newSum(oid int) hash.Hash {
	if oid == sha256.Size {
		return sha256.New()
	}
	return sha1.New() // git's names, not ours
}

func parseIndex(data []byte, oid int) ([]Entry, error) {
	if len(data) < 12+oid || string(data[:4]) != "DIRC" || binary.BigEndian.Uint32(data[4:]) != 2 {
		return nil, fmt.Errorf("is not an index of version 2")
	}
	count := binary.BigEndian.Uint32(data[8:])
	rest := data[12:]
	entries := make([]Entry, 0, min(int(count), len(rest)/(42+oid)))
	for range count {
		fixed := 40 + oid + 2
		if len(rest) < fixed {
			return nil, fmt.Errorf("ends in the middle of an entry")
		}
		end := bytes.IndexByte(rest[fixed:], 0)
		whole := entrySize(oid, end)
		if end <= 0 || whole > len(rest) || !entryFlags(rest[fixed-2:fixed], end) {
			return nil, fmt.Errorf("has an entry that cannot be read")
		}
		field := func(i int) uint32 { return binary.BigEndian.Uint32(rest[4*i:]) }
		entries = append(entries, Entry{
			Path: string(rest[fixed : fixed+end]), Mode: field(6),
			Object: hex.EncodeToString(rest[40 : 40+oid]),
			Stat: Stat{
				CTime: time.Unix(int64(field(0)), int64(field(1))),
				MTime: time.Unix(int64(field(2)), int64(field(3))),
				Inode: field(5), Size: field(9),
			},
		})
		rest = rest[whole:]
	}
	return entries, nil
}

// WriteIndex makes an index of at least one entry for our own git. It has no Stat of
// any file, so git will read the files that exist.
func WriteIndex(path string, entries []Entry) error {
	entries = slices.SortedFunc(slices.Values(entries), func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	data := binary.BigEndian.AppendUint32([]byte("DIRC\x00\x00\x00\x02"), uint32(len(entries)))
	oid := 0
	for _, e := range entries {
		id, err := hex.DecodeString(e.Object)
		if err != nil {
			return fmt.Errorf("index entry %q: %w", e.Path, err)
		}
		oid = len(id)
		begin := len(data)
		data = append(data, make([]byte, 40)...)
		binary.BigEndian.PutUint32(data[begin+24:], e.Mode)
		data = append(data, id...)
		data = binary.BigEndian.AppendUint16(data, uint16(min(len(e.Path), 0x0fff)))
		data = append(data, e.Path...)
		data = append(data, make([]byte, 8-(len(data)-begin)%8)...)
	}
	sum := newSum(oid)
	sum.Write(data)
	return os.WriteFile(path, sum.Sum(data), 0o600)
}

// SetOwner changes what an index of version 2 says of the files' owner and of their times.
// Git compares that with the files, and reads those where it differs.
func SetOwner(path string, uid, gid uint32, times time.Time) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	entries, oid, err := parse(data)
	if err != nil {
		return fmt.Errorf("index %s: %w", path, err)
	}
	when := binary.BigEndian.AppendUint32(nil, uint32(times.Unix()))
	when = binary.BigEndian.AppendUint32(when, uint32(times.Nanosecond()))
	at := data[12:]
	for _, e := range entries {
		copy(at, when)     // of the change
		copy(at[8:], when) // of the content
		binary.BigEndian.PutUint32(at[28:], uid)
		binary.BigEndian.PutUint32(at[32:], gid)
		at = at[entrySize(oid, len(e.Path)):]
	}
	sum := newSum(oid)
	sum.Write(data[:len(data)-oid])
	return os.WriteFile(path, sum.Sum(data[:len(data)-oid]), 0o644)
}

// entryFlags checks that flags are those of a merged, plain entry with a path of n
// bytes; this distinguishes the indexes of the two hashes.
func entryFlags(flags []byte, n int) bool {
	f := binary.BigEndian.Uint16(flags)
	return f&0x7000 == 0 && int(f&0x0fff) == min(n, 0x0fff)
}
