package results

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"iter"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/jobs/report"
)

//go:embed report.html
var reportHTML string

// Limits of the patches that the page holds; the files have all of them.
const (
	maxPatchShown = 64 << 10
	maxPageShown  = 8 << 20
)

// page is parsed when it is first wanted: most starts of the program write none.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Funcs(template.FuncMap{
		"seconds": report.Seconds, "dollars": report.Dollars, "count": report.Number, "line": func(v any, most int) string { return report.Line(fmt.Sprint(v), most) },
		"text":  func(s string, most int) string { return report.Clean(s[:min(len(s), most)]) },
		"patch": patchName, "log": logName, "add": func(a, b int) int { return a + b },
	}).Parse(reportHTML))
})

// view is what the page is made from.
type view struct {
	*summary
	Dir   *Dir
	limit int64
}

// html writes report.html: one page that needs nothing else, row by row.
func (r reporter) html(w io.Writer, s *summary) error {
	limit := int64(maxPatchShown)
	if n := int64(len(s.Rows)); n > 0 {
		limit = min(limit, maxPageShown/n)
	}
	out := bufio.NewWriterSize(w, 64<<10)
	if err := page().Execute(out, view{s, r.dir, limit}); err != nil {
		return err
	}
	return out.Flush()
}

// Part is the width of an outcome in the bar.
func (v view) Part(n int) float64 {
	return 100 * float64(n) / float64(max(v.Totals.Items, 1))
}

// IDWidth is the width of the column of ids, in pixels: every row is a grid
// of its own, and the columns must agree.
func (v view) IDWidth() int {
	width := 5
	for _, r := range v.Rows {
		width = max(width, len(r.ID)+1)
	}
	return 9 * min(width, 26)
}

// Seen yields the rows one by one, each with the beginning of its patch.
func (v view) Seen() iter.Seq[shown] {
	return func(yield func(shown) bool) {
		for _, r := range v.Rows {
			s := shown{row: r}
			if r.Result != nil {
				s.excerpt(v.Dir, v.limit)
			}
			if !yield(s) {
				return
			}
		}
	}
}

// shown is a row with what the page unfolds.
type shown struct {
	row
	Blocks []block
	Cut    bool
}

// block is consecutive lines of a patch that look alike.
type block struct{ Class, Text string }

func (s shown) Outcome() string {
	if s.Result == nil {
		return report.NameOf("")
	}
	return report.NameOf(s.Result.Outcome)
}

func (s shown) Count() int { return len(s.Stat.Files) + s.Stat.More }

// Find is what the search field looks through.
func (s shown) Find() string {
	text := s.ID + " " + s.Title + " " + s.Outcome()
	if s.Result != nil {
		text += " " + string(s.Result.Reason)
	}
	for i, f := range s.Stat.Files {
		if i == 20 {
			break
		}
		text += " " + f.Path
	}
	return strings.ToLower(report.Line(text, 2000))
}

func (s *shown) excerpt(d *Dir, limit int64) {
	if s.Note != "" || limit < 1<<10 {
		s.Cut = s.Note == "" && len(s.Stat.Files) > 0
		return
	}
	f, err := d.files.openRegular(patchName(s.ID))
	if err != nil {
		s.Note = err.Error()
		return
	}
	defer f.Close()
	text := make([]byte, limit+1)
	n, err := io.ReadFull(f, text)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		s.Note = err.Error()
		return
	}
	s.Cut = int64(n) > limit
	s.Blocks = blocks(string(text[:min(int64(n), limit)]))
}

func blocks(text string) []block {
	var out []block
	inHunk := false
	for line := range strings.Lines(strings.ToValidUTF8(text, "\ufffd")) {
		class := "c"
		switch {
		case strings.HasPrefix(line, "diff --git "):
			class, inHunk = "f", false
		case strings.HasPrefix(line, "@@"):
			class, inHunk = "h", true
		case !inHunk:
			class = "m"
		case line[0] == '+':
			class = "a"
		case line[0] == '-':
			class = "d"
		}
		line = report.Clean(line)
		if n := len(out); n > 0 && out[n-1].Class == class && class != "f" {
			out[n-1].Text += line
			continue
		}
		out = append(out, block{class, line})
	}
	return out
}
