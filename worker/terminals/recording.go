package terminals

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/terminal"
)

// keepLimit bounds how long it may take to store a recording.
const keepLimit = time.Minute

// A recording turns what a terminal shows into events and into a file in the
// format asciicast, version 2. It goes at its own pace: where the events are
// slow it finds a gap, and the terminal is not held up.
type recording struct {
	screen  *screen
	cfg     Config
	clean   io.WriteCloser // in front of Write
	cast    bytes.Buffer
	text    []byte // that no event has yet
	since0  time.Time
	written int   // bytes that events and file have
	dropped int64 // bytes that they have not
}

func newRecording(t *screen, cfg Config) *recording {
	r := &recording{screen: t, cfg: cfg}
	r.clean = cfg.Clean(r)
	head, _ := json.Marshal(map[string]any{ // numbers and strings
		"version": 2, "width": t.about.Columns, "height": t.about.Rows, "timestamp": t.about.Opened.Unix(),
		"title": strings.ToValidUTF8(strings.Join(t.about.Args, " "), "\uFFFD"), "env": map[string]string{"TERM": "xterm-256color"},
	})
	r.cast.Write(append(head, '\n'))
	return r
}

func (r *recording) run() {
	at := int64(0)
	for {
		p := r.screen.since(at, terminal.MaxOutput)
		r.dropped += p.from - at
		at = p.from + int64(len(p.data))
		_, _ = r.clean.Write(p.data) // into memory
		if p.exit != nil {
			r.finish(p.exit)
			return
		}
		var due <-chan time.Time
		if len(r.text) > 0 {
			due = time.After(time.Until(r.since0.Add(eventEvery)))
		}
		if len(p.data) > 0 {
			continue
		}
		select {
		case <-p.changed:
		case <-due:
			r.flush(false)
		}
	}
}

// Write takes what was shown, without the values of secrets.
func (r *recording) Write(p []byte) (int, error) {
	room := min(len(p), recorded-r.written)
	r.dropped += int64(len(p) - room)
	r.written += room
	if room == 0 {
		return len(p), nil
	}
	if len(r.text) == 0 {
		r.since0 = time.Now()
	}
	r.text = append(r.text, p[:room]...)
	if len(r.text) >= eventBytes {
		r.flush(false)
	}
	return len(p), nil
}

// flush makes an event, and a line of the file, of whole characters.
func (r *recording) flush(all bool) {
	r.sizes()
	n := len(r.text)
	for cut := 1; !all && cut < utf8.UTFMax && cut <= len(r.text); cut++ {
		if b := r.text[len(r.text)-cut]; utf8.RuneStart(b) {
			if !utf8.FullRune(r.text[len(r.text)-cut:]) {
				n = len(r.text) - cut
			}
			break
		}
	}
	if n == 0 {
		if len(r.text) > 0 {
			r.since0 = time.Now() // the rest of a character is to come
		}
		return
	}
	text := strings.ToValidUTF8(string(r.text[:n]), "\uFFFD")
	r.text, r.since0 = append([]byte(nil), r.text[n:]...), time.Now()
	r.line("o", text)
	r.cfg.Output(event.Make(event.TerminalOutput{Terminal: r.screen.about.Terminal, Text: text}))
}

// sizes writes down that the terminal was resized.
func (r *recording) sizes() {
	r.screen.mu.Lock()
	resized := r.screen.resized
	r.screen.resized = nil
	r.screen.mu.Unlock()
	for _, s := range resized {
		r.line("r", fmt.Sprintf("%dx%d", s.columns, s.rows))
	}
}

func (r *recording) line(code, text string) {
	line, _ := json.Marshal([]any{time.Since(r.screen.about.Opened).Round(time.Microsecond).Seconds(), code, text}) // a number and strings
	r.cast.Write(append(line, '\n'))
}

// finish writes what is left, and stores the file.
func (r *recording) finish(exit *terminal.Exit) {
	_ = r.clean.Close() // into memory
	r.flush(true)
	end := event.Terminal{Terminal: r.screen.about.Terminal, Signal: exit.Signal, Why: exit.Why, Dropped: r.dropped}
	if exit.Why == "" {
		end.Code = &exit.Code
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepLimit)
	defer cancel()
	if err := r.cfg.Keep(ctx, fmt.Sprintf("terminal-%d.cast", r.screen.about.Terminal), &r.cast); err != nil && end.Why == "" {
		end.Why = "its recording could not be stored: " + err.Error()
	}
	r.cfg.Output(event.Make(event.TerminalExited(end)))
}
