package sqlite_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/capsule/internal/sqlite"
)

// sample is a database with trees, rows on several pages and free pages, and its log.
func sample(t testing.TB) (content, log []byte) {
	t.Helper()
	exectest.Need(t, "python3")
	path := filepath.Join(t.TempDir(), "x.db")
	const program = `import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("pragma page_size = 512"); db.execute("pragma journal_mode = wal")
db.execute("create table a (id integer primary key, text text)"); db.execute("create index i on a (text)")
for n in range(60): db.execute("insert into a values (?, ?)", (n, "some text " * n))
db.execute("pragma wal_checkpoint(passive)"); db.execute("delete from a where id > 30"); db.execute("update a set text = 'other'")
os._exit(0)`
	if out, err := exec.CommandContext(t.Context(), "python3", "-c", program, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	content, err := os.ReadFile(path)
	log, errLog := os.ReadFile(path + "-wal")
	if err := errors.Join(err, errLog); err != nil {
		t.Fatal(err)
	}
	return content, log
}

// A tree that leads back to itself is an error.
func TestAPageIsVisitedOnce(t *testing.T) {
	content, _ := sample(t)
	const root, inner = 2, 5
	page := content[(root-1)*512:]
	if page[0] != inner {
		t.Fatalf("page %d is of kind %d", root, page[0])
	}
	binary.BigEndian.PutUint32(page[8:], root)
	d, err := sqlite.Open(content, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Mask(func(p []byte) []byte { return p }); !errors.Is(err, sqlite.ErrCorrupt) {
		t.Errorf("masked, %v", err)
	}
}

// Whatever the files contain, there is a copy of the same size or an error, and soon.
func FuzzDatabase(f *testing.F) {
	content, log := sample(f)
	for at := 0; at < len(content); at += 97 { // of the seeds, each is broken in one place
		f.Add(at, byte(255), 0, byte(0))
		f.Add(at, byte(at), at, byte(1))
	}
	f.Fuzz(func(t *testing.T, at int, change byte, atLog int, changeLog byte) {
		content, log := bytes.Clone(content), bytes.Clone(log)
		content[uint(at)%uint(len(content))] ^= change
		log[uint(atLog)%uint(len(log))] ^= changeLog
		d, err := sqlite.Open(content, log)
		if err != nil {
			return
		}
		size := len(d.Bytes())
		err = d.Mask(func(p []byte) []byte { return bytes.ReplaceAll(p, []byte("text"), []byte("****")) })
		if got := d.Bytes(); len(got) != size || err == nil && (change == 0 && bytes.Contains(got, []byte("some text"))) {
			t.Errorf("of %d bytes %d are left, err %v", size, len(got), err)
		}
	})
}
