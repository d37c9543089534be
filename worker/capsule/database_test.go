package capsule_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/capsule"
)

const database = ".agent/its.db"

func kept(home string) capsule.Conversation {
	return capsule.Conversation{Home: home, Files: capsule.Files{Paths: []capsule.Pattern{".agent/**"}}, ID: "s"}
}

// python runs a program that has the path of a database in db, until it says "ready" or ends. Its
// end is for the test to make.
func python(t *testing.T, home, program string) (said string, kill func()) {
	t.Helper()
	exectest.Need(t, "python3")
	path := filepath.Join(home, database)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-c", "import sqlite3, sys, time\ndb = sqlite3.connect(sys.argv[1], isolation_level=None)\n"+program, path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && lines.Text() != "ready" {
		said += lines.Text() + "\n"
	}
	return said, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it says that it was killed
	}
}

// elsewhere is another home, with what a capsule of the first one has.
func elsewhere(t *testing.T, home string, clean capsule.Cleaner) string {
	t.Helper()
	var packed bytes.Buffer
	if err := kept(home).Pack(&packed, clean); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := kept(other).Unpack(&packed); err != nil {
		t.Fatal(err)
	}
	if got := files(t, other); len(got) != 1 || got[0] != database {
		t.Fatalf("unpacked %q", got)
	}
	return other
}

// A database whose program was killed has its changes in a log. The copy is one sound file that has
// them, without secrets, wherever those lie: in the log, on several pages, in an index, in what was
// deleted.
func TestADatabaseIsPacked(t *testing.T) {
	const secret = "the-secret-of-the-worker"
	for name, mode := range map[string]string{
		"": "", "small pages": "pragma page_size = 512", "vacuums": "pragma auto_vacuum = full", "large pages": "pragma page_size = 16384",
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			_, kill := python(t, home, `
db.execute("`+mode+`")
db.execute("pragma journal_mode = wal"); db.execute("pragma secure_delete = 0")
db.execute("create table a (id integer primary key, text text, n real)")
db.execute("create table b (id text primary key, other text) without rowid")
db.execute("create index i on a (text)")
secret = "`+secret+`"
for n in range(400):
    db.execute("insert into a values (?, ?, 1.5)", (n, "x" * (n * 13) + secret + str(n)))
    db.execute("insert into b values (?, ?)", ("k%d" % n, secret * (n % 50)))
db.execute("pragma wal_checkpoint(passive)")
db.execute("delete from a where id % 3 = 0"); db.execute("delete from b where id like '%7%'")
for n in range(400, 500):
    db.execute("insert into a values (?, ?, 2)", (n, "x" * (n * 13) + secret + str(n)))
db.execute("create table c (text text)")
db.executemany("insert into c values (?)", [[secret * 20]] * 100)
db.execute("drop table c")
db.execute("begin"); db.execute("insert into a values (9999, 'not committed', 0)")
print("ready", flush=True)
time.sleep(600) # until it is killed
`)
			kill()
			if log, err := os.Stat(filepath.Join(home, database+"-wal")); err != nil || log.Size() == 0 {
				t.Fatalf("it has no log: %v", err)
			}
			masked := strings.Repeat("*", len(secret))
			other := elsewhere(t, home, cleaner(func(p []byte) []byte { return bytes.ReplaceAll(p, []byte(secret), []byte(masked)) }))
			content, err := os.ReadFile(filepath.Join(other, database))
			if err != nil || bytes.Contains(content, []byte("secret-of")) {
				t.Errorf("a secret is in the copy, or a part of one: %v", err)
			}
			said, kill := python(t, other, `
print(db.execute("pragma integrity_check").fetchall())
rows = db.execute("select id, text from a order by id").fetchall()
print(len(rows), all(text == "x" * (id * 13) + "`+masked+`" + str(id) for id, text in rows))
print(db.execute("select count(*), sum(length(other)) from b").fetchone())
db.execute("insert into a values (10000, 'more', 0)"); db.execute("vacuum")
print(db.execute("pragma integrity_check").fetchall(), db.execute("select text from a where text = 'more'").fetchall())
`)
			kill()
			want := "[('ok',)]\n366 True\n(324, " + fmt.Sprint(sum()*len(secret)) + ")\n[('ok',)] [('more',)]\n"
			if said != want {
				t.Errorf("the copy has\n%swant\n%s", said, want)
			}
		})
	}
}

// sum is how often the secret is in what was not deleted of table b.
func sum() (n int) {
	for i := range 400 {
		if !strings.Contains(fmt.Sprint(i), "7") {
			n += i % 50
		}
	}
	return n
}

// Each copy of a database that its program changes is what one transaction has left.
func TestADatabaseIsPackedWhileItChanges(t *testing.T) {
	home := t.TempDir()
	_, kill := python(t, home, `
db.execute("pragma journal_mode = wal"); db.execute("pragma synchronous = off"); db.execute("pragma wal_autocheckpoint = 20")
db.execute("create table a (id integer primary key, text text)"); db.execute("create table b (id integer primary key, text text)")
n = 0
while True:
    db.execute("begin")
    for table in "ab":
        db.execute("insert or replace into %s values (?, ?)" % table, (n % 300, "x" * (n % 5000)))
    db.execute("commit")
    n += 1
    if n == 300: print("ready", flush=True)
    if n % 200 == 0: time.sleep(0.1) # a program that never rests cannot be copied
`)
	defer kill()
	for range 20 {
		said, end := python(t, elsewhere(t, home, asIs), `
print(db.execute("pragma integrity_check").fetchall())
print(db.execute("select count(*) from a join b using (id, text)").fetchone(), db.execute("select count(*) from a").fetchone())
`)
		end()
		if said != "[('ok',)]\n(300,) (300,)\n" {
			t.Fatalf("a copy has\n%s", said)
		}
	}
}
