package console

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"github.com/penstock-run/penstock/jobs/visible"
)

// A Writer is one of the two streams of a command. Its methods may be called by
// several goroutines.
type Writer struct {
	out   io.Writer
	tty   *os.File // nil: it is none
	dumb  bool     // the terminal knows lines only
	color bool
	wide  int // columns, if it is no terminal; 0 is as many as a line needs

	mu   sync.Mutex
	rest []byte // the beginning of a character whose end was not written yet
	live live
}

// New returns the writer of a stream. The environment says what its terminal
// can do.
func New(out io.Writer, getenv func(string) string) *Writer {
	w := &Writer{out: out}
	w.wide, _ = strconv.Atoi(getenv("COLUMNS"))
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		w.tty, w.dumb = f, getenv("TERM") == "dumb"
	}
	w.color = colored(Auto, w, getenv)
	return w
}

// Recolor decides anew whether our own words are coloured.
func (w *Writer) Recolor(mode Mode, getenv func(string) string) { w.color = colored(mode, w, getenv) }

// Terminal returns the terminal of the stream, or nil.
func (w *Writer) Terminal() *os.File { return w.tty }

// Rich reports whether the stream shows more than lines: it is a terminal that
// understands colours and columns, or the user asked for colours.
func (w *Writer) Rich() bool { return w.tty != nil && !w.dumb || w.color }

// Width is how many columns a line may have; 0 is as many as it needs.
func (w *Writer) Width() int {
	if w.tty == nil {
		if w.color {
			return max(cmp.Or(w.wide, 100), 20) // a pager does not report it
		}
		return 0
	}
	columns, _, err := term.GetSize(int(w.tty.Fd()))
	if err != nil || columns <= 0 {
		return 80
	}
	return max(columns, 20)
}

// Raw is the stream itself, for commands that show another program's terminal. The user
// has asked for exactly that output.
func (w *Writer) Raw() io.Writer { return w.out }

// Write writes a document: its exact bytes to a pipe or a file, and its visible form to
// a terminal.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tty == nil {
		return w.out.Write(p)
	}
	text := append(w.rest, p...)
	whole := len(text)
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if c := text[len(text)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(text[len(text)-n:]) {
				whole -= n
			}
			break
		}
	}
	w.rest = append([]byte(nil), text[whole:]...)
	if err := w.put(visible.Document(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what remained of a character that was cut off. The stream stays
// open: it is the process's.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := string(w.rest)
	w.rest = nil
	return w.put(visible.Document(rest))
}

// Printf writes a format of ours with arguments of others: each formatted argument
// becomes one visible line.
func (w *Writer) Printf(format string, args ...any) { _ = w.print(Sprintf(format, args...)) }

// Sprintf returns what Printf writes.
func Sprintf(format string, args ...any) string {
	shown := make([]any, len(args))
	for i, arg := range args {
		shown[i] = visibly{arg}
	}
	return fmt.Sprintf(format, shown...)
}

// print writes text that is visible already.
func (w *Writer) print(text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.put(text)
}

// visibly is an argument of Printf.
type visibly struct{ value any }

// Format makes the argument's text one visible line, and fills it up to the width
// that it has then.
func (v visibly) Format(state fmt.State, verb rune) {
	format := "%"
	for _, flag := range "+# 0" {
		if state.Flag(int(flag)) {
			format += string(flag)
		}
	}
	width, _ := state.Width()
	if width > 0 && state.Flag('0') {
		format += fmt.Sprint(width) // of a number
	}
	if digits, ok := state.Precision(); ok {
		format += fmt.Sprintf(".%d", digits)
	}
	text := visible.Line(fmt.Sprintf(format+string(verb), v.value))
	padding := strings.Repeat(" ", max(0, width-runewidth.StringWidth(text)))
	if state.Flag('-') {
		text += padding
	} else {
		text = padding + text
	}
	_, _ = io.WriteString(state, text) // a buffer
}

// Report writes an error for a person. Where several were joined, each has a line
// of its own; whatever is in them, no other begins in the first column.
func (w *Writer) Report(prefix, text string) {
	var b strings.Builder
	for i, line := range visible.Block(text) {
		lead := prefix
		if i > 0 {
			lead = "  "
		}
		for j, part := range Wrap(line, w.room(lead)) {
			if j > 0 {
				lead = "  "
			}
			b.WriteString(lead + part + "\n")
		}
	}
	_ = w.print(b.String())
}

// room is how many columns are left beside what a line begins with; 0 is as many
// as it needs.
func (w *Writer) room(lead string) int {
	if width := w.Width(); width > 0 {
		return max(10, width-runewidth.StringWidth(lead))
	}
	return 0
}
