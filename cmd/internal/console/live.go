package console

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"
)

// live is the part of a screen below everything that is written, which changes.
//
// The cursor rests at its beginning and not at its end, on an empty line, which no
// terminal breaks. A terminal that becomes
// narrower or wider breaks lines anew and takes the cursor along with its line, so
// the next drawing begins at the right place whatever became of the rows below.
type live struct {
	rows  [][]Span
	drawn string // what stands there now
	part  bool   // the line above has not ended: nothing can stand below it yet
}

// clearLive clears from the cursor's line on. It does so in two steps, because
// terminals such as tmux keep a copy of a screen that is cleared as a whole.
const clearLive = "\r\x1b[K\n\x1b[J\x1b[A"

// Live shows rows below everything that is written from now on, cut to what the
// terminal has room for, instead of those that it showed before. None: nothing is
// shown there any more. What did not change is not drawn again.
func (w *Writer) Live(rows [][]Span) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.live.drawn
	w.live.rows = rows
	if w.live.part {
		return nil
	}
	drawn := w.draw()
	if drawn == before {
		return nil
	}
	w.live.drawn = drawn
	_, err := io.WriteString(w.out, cmp.Or(drawn, clearLive))
	return err
}

// put writes visible text above the live rows. Its caller holds the lock.
func (w *Writer) put(text string) error {
	if len(w.live.rows) == 0 || text == "" {
		_, err := io.WriteString(w.out, text)
		return err
	}
	if !w.live.part {
		text = clearLive + text
	}
	w.live.part, w.live.drawn = !strings.HasSuffix(text, "\n"), ""
	if !w.live.part {
		w.live.drawn = w.draw()
	}
	_, err := io.WriteString(w.out, text+w.live.drawn)
	return err
}

// draw returns what draws the live rows over those that stand there. Each is
// shorter than the terminal is wide: one that fills it would leave the cursor
// between two lines. It writes over them before it clears, so nothing flickers.
func (w *Writer) draw() string {
	columns, lines := w.Size()
	rows := w.live.rows
	if len(rows) == 0 {
		return ""
	}
	if len(rows) > lines-2 {
		rows = rows[len(rows)-lines+2:] // the last ones sum up the others
	}
	rows = append([][]Span{nil}, rows...)
	var b strings.Builder
	b.WriteByte('\r')
	for i, row := range rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(w.spans(cutSpans(row, columns-1)) + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	if up := len(rows) - 1; up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteByte('\r')
	return b.String()
}

// Size is how many columns and lines the terminal has, or would have.
func (w *Writer) Size() (columns, lines int) {
	if w.tty != nil {
		if c, l, err := term.GetSize(int(w.tty.Fd())); err == nil && c > 0 && l > 0 {
			return max(c, 2), max(l, 3)
		}
	}
	return max(cmp.Or(w.wide, 80), 2), 24
}

// cutSpans makes the text of spans visible and shortens them to width columns.
func cutSpans(spans []Span, width int) []Span {
	var fit []Span
	for _, s := range spans {
		s.Text = Line(s.Text)
		if Columns(s.Text) > width {
			s.Text = Cut(s.Text, width)
			if width <= 0 {
				break
			}
		}
		width -= Columns(s.Text)
		fit = append(fit, s)
	}
	return fit
}
