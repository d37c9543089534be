package capsule

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/penstock-run/penstock/worker/capsule/internal/sqlite"
)

// besides are what the names of the files beside an SQLite database add to its name. The first
// is that of the write-ahead log.
var besides = []string{"-wal", "-shm", "-journal"}

// beside reports whether a file is one of those beside a database.
func beside(root *os.Root, name, end string) bool {
	of, ok := strings.CutSuffix(name, end)
	if !ok {
		return false
	}
	info, err := root.Lstat(of)
	return err == nil && info.Mode().IsRegular()
}

// maxReads is how often a database is read that its agent changes meanwhile.
const maxReads = 20

// database is a consistent and clean copy of a database that its agent may still use.
//
// The agent writes changes to the log, later copies them from there to the database, and then
// begins the log again with another header. If the header stays the same while the database is
// read and then the log, the log has every page that was copied meanwhile.
func database(root *os.Root, name string, limit int64, clean Cleaner) ([]byte, error) {
	for range maxReads {
		before, err := log(root, name, limit)
		if err != nil {
			return nil, err
		}
		content, err := read(root, name, limit)
		if err != nil {
			return nil, err
		}
		after, err := log(root, name, limit-int64(len(content)))
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(before[:min(len(before), sqlite.LogHeader)], after[:min(len(after), sqlite.LogHeader)]) {
			continue
		}
		db, err := sqlite.Open(content, after)
		if err != nil {
			return nil, err
		}
		if err := db.Mask(clean.Mask); err != nil {
			return nil, err
		}
		return db.Bytes(), nil
	}
	return nil, errors.New("it changes too fast to be copied")
}

// log is the write-ahead log of a database; empty: it has none.
func log(root *os.Root, name string, limit int64) ([]byte, error) {
	content, err := read(root, name+besides[0], limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return content, err
}
