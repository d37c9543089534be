package overlap_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/patchstat"
	"github.com/penstock-run/penstock/jobs/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

func work(job, base string, files ...patchstat.File) overlap.Work {
	return overlap.New(jobs.Record{ID: job, Repo: "r"}, base, patchstat.Stat{Files: files}, strings.ToLower)
}

func file(path string, lines ...int) patchstat.File {
	f := patchstat.File{Path: path}
	for _, at := range lines {
		f.Spans = append(f.Spans, patchstat.Span{Begin: at, End: at + 1})
	}
	return f
}

func TestWith(t *testing.T) {
	t.Parallel()
	one := work("one", "c1", file("A.go", 5), file("b.go", 1), file("c.go", 1))
	elsewhere := work("two", "c1", file("a.go", 5))
	elsewhere.Repo = "another"
	many := work("two", "c1")
	for n := range 30 {
		one.Files = append(one.Files, overlap.File{Path: fmt.Sprint("f", n), Lines: [][2]int{{1, 2}}})
		many.Files = append(many.Files, overlap.File{Path: fmt.Sprint("f", n), Lines: [][2]int{{9, 9}}})
	}
	for _, tt := range []struct {
		name  string
		other overlap.Work
		want  string // "" is none
	}{
		{"other files", work("two", "c1", file("d.go", 5)), ""},
		{"itself", one, ""},
		{"another repository", elsewhere, ""},
		{"the same lines", work("two", "c1", file("c.go", 90), file("a.go", 5)), "a.go, c.go; the same lines, or lines beside them, of a.go"},
		{"other lines", work("two", "c1", file("a.go", 50)), "a.go; other lines"},
		{"another base", work("two", "c2", file("a.go", 5)), "a.go; it began from another commit, so lines were not compared"},
		{"a new file of the same name", work("two", "c1", patchstat.File{Path: "a.go", New: true}), "a.go; the same lines, or lines beside them, of a.go"},
		{"more than are named", many, "f0, f1, f10, f11, f12, f13, f14, f15, f16, f17 and 20 more; other lines"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found, ok := one.With(tt.other)
			if want := "job two changes the same files: " + tt.want; ok != (tt.want != "") || ok && found.String() != want {
				t.Errorf("%v: %q, want %q", ok, found, want)
			}
		})
	}
}

// However much an agent changes, what is kept of it fits into a message, and says that there is more.
func TestWhatIsKeptIsBounded(t *testing.T) {
	t.Parallel()
	var files []patchstat.File
	for n := range 2000 {
		files = append(files, file(fmt.Sprint(strings.Repeat("x", 300), n), 1, 3, 5, 7))
	}
	lines := file("many lines")
	for n := range 500 {
		lines.Spans = append(lines.Spans, patchstat.Span{Begin: 3 * n, End: 3*n + 1})
	}
	s := jobstest.Start(t)
	store := overlap.Of(jobstest.Queue(t, s.Connect(), queue.Config{}).Workers())
	w := work("hostile", "c", append([]patchstat.File{lines}, files...)...)
	if len(w.Files)+w.More != 2001 || w.Files[0].Lines != nil {
		t.Errorf("%d files and %d more, of 2001", len(w.Files), w.More)
	}
	if err := store.Put(t.Context(), w); err != nil {
		t.Error(err)
	}
}

// A work is read once after each change, the last one only, and what was found is there by job.
func TestStore(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := jobstest.Queue(t, s.Connect(), queue.Config{})
	store, ctx := overlap.Of(q.Workers()), t.Context()
	var at overlap.Cursor
	read := func() (all []string) {
		t.Helper()
		var err error
		at, err = store.Since(ctx, at, func(w overlap.Work) { all = append(all, fmt.Sprint(w.Job, len(w.Files))) })
		if err != nil {
			t.Error(err)
		}
		return all
	}
	for _, w := range []overlap.Work{work("one", "c", file("a")), work("two", "c", file("a")), work("one", "c", file("a"), file("b"))} {
		if err := store.Put(ctx, w); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(); !slices.Equal(got, []string{"two1", "one2"}) {
		t.Errorf("read %q", got)
	}
	if got := read(); len(got) > 0 {
		t.Errorf("read again %q", got)
	}
	for _, found := range []jobs.Overlap{{Job: "two", Files: []string{"a"}}, {Job: "three", Files: []string{"b"}, Lines: []string{"b"}}, {Job: "two", Files: []string{"a", "b"}}} {
		if err := store.Note(ctx, "one", found); err != nil {
			t.Fatal(err)
		}
	}
	found, err := store.Found(ctx, "one")
	if err != nil || len(found) != 2 || found[0].Job != "three" || len(found[1].Files) != 2 {
		t.Errorf("found %+v, %v", found, err)
	}
	if found, err = store.Found(ctx, "two"); err != nil || len(found) > 0 {
		t.Errorf("of another job: %+v, %v", found, err)
	}
	var all []string
	if err := store.All(ctx, func(job string, found jobs.Overlap) { all = append(all, job+" "+found.Job) }); err != nil || !slices.Equal(all, []string{"one three", "one two"}) {
		t.Errorf("all: %q, %v", all, err)
	}
	if list, err := q.Workers().List(ctx); err != nil || len(list) > 0 {
		t.Errorf("as workers: %+v, %v", list, err)
	}
	s.Restart()
	if found, err := store.Found(ctx, "one"); err != nil || len(found) != 2 {
		t.Errorf("after a restart of the broker: %+v, %v", found, err)
	}
}
