package results

import (
	"encoding/csv"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

var update = flag.Bool("update", false, "write the golden files")

func report(t testing.TB, d *Dir, format string) string {
	t.Helper()
	var b strings.Builder
	if err := d.Report(&b, format); err != nil {
		t.Fatalf("Report %s: %v", format, err)
	}
	return b.String()
}

// TestReports compares all reports of a batch that has everything: hostile
// titles, conflicts, files that run code, empty patches, missing items.
func TestReports(t *testing.T) {
	synctest.Test(t, testReports) // its clock stands still
}

func testReports(t *testing.T) {
	d := openDir(t, t.TempDir(), manifest(21))
	fill(t, d, 0, 20)
	fixed(d)
	d.manifest.State, d.manifest.Why = Stopped, "the model's key was refused"
	for _, format := range []string{"md", "html", "junit", "csv"} {
		got := report(t, d, format)
		path := filepath.Join("testdata", "report."+format+".golden")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := content(t, path); got != want {
			t.Errorf("%s differs: run with -update and read the diff", path)
		}
		for _, r := range got {
			if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\u202e' {
				t.Errorf("%s has the control character %U", format, r)
			}
		}
	}
	if err := d.Report(io.Discard, "pdf"); err == nil {
		t.Error("unknown format: no error")
	}
}

func TestReportsAreSafe(t *testing.T) {
	d := openDir(t, t.TempDir(), manifest(20))
	fill(t, d, 0, 20)
	page := report(t, d, "html")
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img src=x>") || strings.Contains(page, "<b>bold") {
		t.Error("html: markup of others is in the page")
	}
	if !strings.Contains(page, "&lt;script&gt;alert(0)&lt;/script&gt;") || !strings.Contains(page, "&lt;img src=x&gt;") {
		t.Error("html: the text itself is not shown")
	}
	text := report(t, d, "md")
	for _, raw := range []string{"<script>", "@everyone", "[an empty](http", "<img"} {
		if strings.Contains(text, raw) {
			t.Errorf("markdown has %q as it is", raw)
		}
	}
	var doc suite
	if err := xml.Unmarshal([]byte(report(t, d, "junit")), &doc); err != nil {
		t.Fatalf("junit: %v", err)
	}
	if doc.Tests != 20 || doc.Failures != 2 || doc.Errors != 3 || len(doc.Cases) != 20 {
		t.Errorf("junit counts %+v", doc)
	}
	rows, err := csv.NewReader(strings.NewReader(report(t, d, "csv"))).ReadAll()
	if err != nil || len(rows) != 21 {
		t.Errorf("csv: %d rows, %v", len(rows), err)
	}
	if got := cell("=HYPERLINK(1)"); got != "'=HYPERLINK(1)" {
		t.Errorf("cell: %q", got)
	}
}

func TestOverlaps(t *testing.T) {
	span := func(item string, base string, spans ...Span) touch {
		return touch{item, base, FileStat{Path: "f", Spans: spans}}
	}
	cases := []struct {
		name string
		a, b touch
		want bool
	}{
		{"same line", span("a", "x", Span{5, 6}), span("b", "x", Span{5, 6}), true},
		{"next line", span("a", "x", Span{5, 6}), span("b", "x", Span{6, 7}), true},
		{"insert at one place", span("a", "x", Span{5, 5}), span("b", "x", Span{5, 5}), true},
		{"apart", span("a", "x", Span{5, 6}, Span{20, 22}), span("b", "x", Span{8, 9}, Span{40, 41}), false},
		{"later ones", span("a", "x", Span{5, 6}, Span{40, 45}), span("b", "x", Span{8, 9}, Span{44, 50}), true},
		{"another base", span("a", "x", Span{5, 6}), span("b", "y", Span{50, 60}), true},
		{"deleted", touch{"a", "x", FileStat{Deleted: true}}, span("b", "x", Span{1, 2}), true},
	}
	for _, c := range cases {
		if got := collide(c.a, c.b); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if got := collide(c.b, c.a); got != c.want {
			t.Errorf("%s, turned around: %v, want %v", c.name, got, c.want)
		}
	}
	var o overlaps
	for i := range 500 {
		o.add(string(rune('a'+i%26)), "x", Stat{Files: []FileStat{{Path: "same"}}})
	}
	if pairs, more := o.pairs(); len(pairs) > maxShown || more != -1 {
		t.Errorf("%d pairs, more %d: want that it gives up", len(pairs), more)
	}
}

var plusses = strings.Repeat("+", 64<<10)

// endless is a large patch that is never in memory as a whole.
type endless struct{ left int }

func (z *endless) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), z.left)], plusses)
	z.left -= n
	return n, nil
}

// TestLargePatches writes more in patches than Finish may take in memory.
func TestLargePatches(t *testing.T) {
	const each, n = 8 << 20, 3
	d := openDir(t, t.TempDir(), manifest(n))
	for i := range n {
		if err := d.Add(t.Context(), result(i), &endless{each}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := d.Finish(Completed, ""); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > n*each/3 {
		t.Errorf("Finish allocated %d MiB for %d MiB of patches", got>>20, n*each>>20)
	}
	info, err := os.Stat(filepath.Join(d.dir, "report.html"))
	if err != nil || info.Size() > 6*n*maxPatchShown+64<<10 { // a plus sign is five bytes there
		t.Errorf("the page has %d bytes, err %v", info.Size(), err)
	}
}
