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

func written(t testing.TB, d *Dir, format string) string {
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
		got := written(t, d, format)
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
	page := written(t, d, "html")
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img src=x>") || strings.Contains(page, "<b>bold") {
		t.Error("html: markup of others is in the page")
	}
	if !strings.Contains(page, "&lt;script&gt;alert(0)&lt;/script&gt;") || !strings.Contains(page, "&lt;img src=x&gt;") {
		t.Error("html: the text itself is not shown")
	}
	text := written(t, d, "md")
	for _, raw := range []string{"<script>", "@everyone", "[an empty](http", "<img"} {
		if strings.Contains(text, raw) {
			t.Errorf("markdown has %q as it is", raw)
		}
	}
	var doc suite
	if err := xml.Unmarshal([]byte(written(t, d, "junit")), &doc); err != nil {
		t.Fatalf("junit: %v", err)
	}
	if doc.Tests != 20 || doc.Failures != 2 || doc.Errors != 3 || len(doc.Cases) != 20 {
		t.Errorf("junit counts %+v", doc)
	}
	rows, err := csv.NewReader(strings.NewReader(written(t, d, "csv"))).ReadAll()
	if err != nil || len(rows) != 21 {
		t.Errorf("csv: %d rows, %v", len(rows), err)
	}
	if got := cell("=HYPERLINK(1)"); got != "'=HYPERLINK(1)" {
		t.Errorf("cell: %q", got)
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
	info, err := os.Stat(filepath.Join(d.files.dir, "report.html"))
	if err != nil || info.Size() > 6*n*maxPatchShown+64<<10 { // a plus sign is five bytes there
		t.Errorf("the page has %d bytes, err %v", info.Size(), err)
	}
}

// The page shows any text as a patch, and all of its lines.
func FuzzBlocks(f *testing.F) {
	f.Add(sharedPatch + workflowPatch)
	f.Add("diff --git \"a/\\303\" \"b\n@@ -1 +1 @@\n-a\n+b\nrename from x\nGIT binary patch\n")
	f.Fuzz(func(t *testing.T, text string) {
		shown := 0
		for _, b := range blocks(text) {
			shown += strings.Count(b.Text, "\n")
		}
		if want := strings.Count(strings.ToValidUTF8(text, "\ufffd"), "\n"); shown != want {
			t.Fatalf("%d lines of %d are shown: %q", shown, want, text)
		}
	})
}
