package console

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"

	"github.com/penstock-run/penstock/jobs/visible"
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

// Live shows rows below everything that is written from now on, in place of the rows
// that it showed before, cut to [Writer.LiveSize]. Without rows it shows nothing. It
// does not draw unchanged rows again.
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

// draw returns what draws the live rows. The terminal may have another size by then:
// tmux tells its programs a quarter of a second later that it has changed. So no row
// is wrapped, whatever its length, and the cursor moves down without scrolling, once
// there is room below. Where the terminal has too few lines for the rows, the last of
// them stays, and the cursor is in its first line again.
func (w *Writer) draw() string {
	columns, most := w.LiveSize()
	rows := w.live.rows
	if len(rows) == 0 {
		return ""
	}
	rows = rows[max(len(rows)-most, 0):] // the last rows summarize the others
	var b strings.Builder
	back := fmt.Sprintf("\x1b[%dA\r", len(rows))
	b.WriteString(clearLive + noWrap + strings.Repeat("\n", len(rows)) + back)
	for _, row := range rows {
		b.WriteString("\x1b[B\r" + w.spans(cutSpans(row, columns)) + "\x1b[K")
	}
	b.WriteString(back + wrap)
	return b.String()
}

// What makes a terminal cut lines off that are too long for it, or break them.
const (
	noWrap = "\x1b[?7l"
	wrap   = "\x1b[?7h"
)

// LiveSize is how many columns and rows [Writer.Live] shows. A terminal that becomes
// narrower breaks rows that are too wide for it, and what it then has no room for goes
// to its history, from where nothing takes it back. So one that is split in two breaks
// no row if it had 160 columns, and has room for all of them in any case.
func (w *Writer) LiveSize() (columns, rows int) {
	const enough = 80
	columns, lines := w.Size()
	return min(columns-1, max(columns/2, enough)), max((lines-1)/2, 1)
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
		s.Text = visible.Line(s.Text)
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
