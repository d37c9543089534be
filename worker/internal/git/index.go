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
	for _, size := range []int{20, 32} {
		if entries, err = parseIndex(data, size); err == nil {
			return entries, info.ModTime(), nil
		}
	}
	return nil, time.Time{}, fmt.Errorf("index %s: %w", path, err)
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
		// An entry is padded with one to eight NULs to a multiple of eight.
		whole := (fixed + end + 8) &^ 7
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
	var sum hash.Hash = sha1.New() // git's names, not ours
	if oid == sha256.Size {
		sum = sha256.New()
	}
	sum.Write(data)
	return os.WriteFile(path, sum.Sum(data), 0o600)
}

// entryFlags checks that flags are those of a merged, plain entry with a path of n
// bytes; this distinguishes the indexes of the two hashes.
func entryFlags(flags []byte, n int) bool {
	f := binary.BigEndian.Uint16(flags)
	return f&0x7000 == 0 && int(f&0x0fff) == min(n, 0x0fff)
}
