package console

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// A terminal does with bytes what tmux does, as far as Live uses it: it breaks lines
// anew when it becomes narrower, keeps its last lines in sight, and takes the cursor
// along with its line.
type terminal struct {
	columns, rows int
	history       []string
	lines         [][]rune // in sight
	row, col      int
	cuts          bool // lines that are too long, instead of breaking them
}

func newTerminal(columns, rows int) *terminal {
	return &terminal{columns: columns, rows: rows, lines: make([][]rune, rows)}
}

var sequence = regexp.MustCompile(`^\x1b\[(\??)([0-9]*)([A-Za-z])`)

func (t *terminal) write(text string) {
	for text != "" {
		if m := sequence.FindStringSubmatch(text); m != nil {
			n := 1
			_, _ = fmt.Sscan(m[2], &n) // none is 1
			t.control(m[3], n)
			text = text[len(m[0]):]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		t.put(r)
		text = text[n:]
	}
}

func (t *terminal) control(what string, n int) {
	switch what {
	case "A":
		t.row = max(t.row-n, 0)
	case "B":
		t.row = min(t.row+n, t.rows-1)
	case "K":
		t.lines[t.row] = t.lines[t.row][:min(t.col, len(t.lines[t.row]))]
	case "J":
		t.control("K", 1)
		for i := t.row + 1; i < t.rows; i++ {
			t.lines[i] = nil
		}
	case "h", "l":
		t.cuts = what == "l"
	}
}

func (t *terminal) put(r rune) {
	switch {
	case r == '\r':
		t.col = 0
		return
	case r == '\n':
		t.feed()
		return
	case t.col == t.columns && t.cuts:
		return
	case t.col == t.columns:
		t.feed()
	}
	line := t.lines[t.row]
	for len(line) <= t.col {
		line = append(line, ' ')
	}
	line[t.col] = r
	t.lines[t.row] = line
	t.col++
}

func (t *terminal) feed() {
	if t.col = 0; t.row < t.rows-1 {
		t.row++
		return
	}
	t.history = append(t.history, string(t.lines[0]))
	t.lines = append(t.lines[1:], nil)
}

func (t *terminal) resize(columns, rows int) {
	for t.rows > rows && t.rows-1 > t.row { // below the cursor first
		t.rows--
	}
	t.lines = t.lines[:t.rows]
	var lines [][]rune
	row := 0
	for i, line := range t.lines {
		if i == t.row {
			row = len(lines)
		}
		for len(line) > columns {
			lines, line = append(lines, line[:columns:columns]), line[columns:]
		}
		lines = append(lines, line)
	}
	for len(lines) < rows {
		lines = append(lines, nil)
	}
	gone := len(lines) - rows
	for _, line := range lines[:gone] {
		t.history = append(t.history, string(line))
	}
	t.lines, t.row, t.col = lines[gone:], max(row-gone, 0), 0
	t.columns, t.rows = columns, rows
}

func (t *terminal) text() string {
	all := strings.Join(t.history, "\n")
	for _, line := range t.lines {
		all += "\n" + string(line)
	}
	return all
}

// Whatever size a terminal takes, and however late the program learns of it, nothing
// of the live rows stays above them, and everything that was written is there once.
func TestLiveRowsLeaveNothingBehind(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, seed))
		size := func() (columns, rows int) { return 80 + random.IntN(81), 6 + random.IntN(40) }
		columns, rows := size()
		var out bytes.Buffer
		w := New(&out, func(name string) string {
			return map[string]string{"COLUMNS": fmt.Sprint(columns), "FORCE_COLOR": "1"}[name]
		})
		screen := newTerminal(columns, rows)
		written := 0
		show := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			screen.write(out.String())
			out.Reset()
		}
		for i := range 60 {
			if random.IntN(5) == 0 {
				screen.resize(size())
			}
			if random.IntN(4) == 0 {
				w.wide = screen.columns // it learns of it
			}
			live := make([][]Span, 1+random.IntN(12))
			for r := range live {
				live[r] = []Span{{Style: Dim, Text: fmt.Sprintf("LIVE%d.%d %s", r, i, strings.Repeat("words ", random.IntN(40)))}}
			}
			show(w.Live(live))
			if random.IntN(3) == 0 {
				written++
				show(w.print(fmt.Sprintf("item %d ended\n", written)))
			}
		}
		show(w.Live(nil))
		show(w.print("the end\n"))
		text := screen.text()
		if strings.Contains(text, "LIVE") || strings.Contains(text, "words") {
			t.Fatalf("seed %d: live rows stay:\n%s", seed, text)
		}
		for i := range written {
			if n := strings.Count(text, fmt.Sprintf("item %d ended", i+1)); n != 1 {
				t.Fatalf("seed %d: item %d is there %d times:\n%s", seed, i+1, n, text)
			}
		}
		if screen.cuts {
			t.Fatalf("seed %d: the terminal is left cutting lines", seed)
		}
	}
}
