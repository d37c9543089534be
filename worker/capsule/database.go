package capsule

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

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

// copyFor is how long it is tried to read a database that its agent changes meanwhile.
const copyFor = 10 * time.Second

// database is a consistent and clean copy of a database that its agent may still use.
//
// The agent writes changes to the log, later copies them from there to the database, and then
// begins the log again with another header, before it writes over what the log had. If the header
// stays the same from before the database is read until after the log is, the log has every page
// that was copied meanwhile.
func database(root *os.Root, name string, limit int64, clean Cleaner) ([]byte, error) {
	for end := time.Now().Add(copyFor); ; {
		before, err := logHeader(root, name)
		if err != nil {
			return nil, err
		}
		content, err := read(root, name, limit)
		if err != nil {
			return nil, err
		}
		log, err := read(root, name+besides[0], limit-int64(len(content)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have none
			return nil, err
		}
		after, err := logHeader(root, name)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(before, after) || len(log) < len(after) {
			if time.Now().After(end) {
				return nil, errors.New("it changes too fast to be copied")
			}
			continue
		}
		db, err := sqlite.Open(content, log)
		if err != nil {
			return nil, err
		}
		if err := db.Mask(clean.Mask); err != nil {
			return nil, err
		}
		return db.Bytes(), nil
	}
}

// logHeader is the beginning of the write-ahead log of a database; empty: it has none.
func logHeader(root *os.Root, name string) ([]byte, error) {
	f, _, err := open(root, name+besides[0])
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, sqlite.LogHeader))
}
