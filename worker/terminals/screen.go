package terminals

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/terminal"
	"github.com/penstock-run/penstock/sandbox"
)

// A screen is one terminal.
type screen struct {
	inner *sandbox.Terminal

	mu      sync.Mutex
	about   terminal.Info // its numbers and its program do not change
	shown   []byte        // the last that was shown; its end is at about.Shown
	changed chan struct{} // closed, and made anew, when there is more to read
	typed   map[string]int64
	waiting []byte        // was typed, and is not written yet
	news    chan struct{} // has a value when something waits, or it is over
	viewers map[string]time.Time
	resized []size // that the recording has not told
}

type size struct{ rows, columns uint16 }

func newScreen(about terminal.Info) *screen {
	return &screen{
		about: about, changed: make(chan struct{}), typed: map[string]int64{}, viewers: map[string]time.Time{},
		news: make(chan struct{}, 1),
	}
}

// run carries bytes until the terminal is over.
func (t *screen) run(cfg Config, working *sync.WaitGroup) {
	working.Go(t.show)
	working.Go(t.enter)
	working.Go(newRecording(t, cfg).run)
}

// end ends the terminal's program. What it has shown can still be read.
func (t *screen) end() { _ = t.inner.Close() } // it is closed, or already was

func (t *screen) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.about.Exit != nil
}

func (t *screen) info() terminal.Info {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, last := range t.viewers {
		if time.Since(last) > 2*terminal.Patience {
			delete(t.viewers, id)
		}
	}
	about := t.about
	about.Viewers = len(t.viewers)
	return about
}

// exitPatience is how long the end of a program may take to be reported, once
// no process has its side of the terminal open.
const exitPatience = 2 * time.Second

// show keeps what the program writes, until no process can write any more.
func (t *screen) show() {
	b := make([]byte, 32<<10)
	began, read := time.Now(), 0
	for {
		n, err := t.inner.Read(b)
		t.keep(b[:n])
		if err != nil {
			break
		}
		if read += n; read >= pace/10 {
			time.Sleep(100*time.Millisecond - time.Since(began))
			began, read = time.Now(), 0
		} else if time.Since(began) > 100*time.Millisecond {
			began, read = time.Now(), n
		}
	}
	select {
	case <-t.inner.Done():
	case <-time.After(exitPatience): // it has let go of its terminal
	}
	t.end()
	exit, err := t.inner.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.about.Exit = &terminal.Exit{Code: exit.Code}
	switch {
	case err != nil:
		t.about.Exit.Why = err.Error()
	case exit.Stopped:
		t.about.Exit.Why = "it was closed"
	case exit.Signal != 0:
		t.about.Exit.Signal = exit.Signal.String()
	}
	t.tell()
}

// tell wakes the waiting viewers. The lock is held.
func (t *screen) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
	select {
	case t.news <- struct{}{}:
	default:
	}
}

func (t *screen) keep(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(b) == 0 {
		return
	}
	t.about.Shown += int64(len(b))
	t.shown = append(t.shown, b...)
	if len(t.shown) > 2*kept { // seldom: each time as much is moved as was shown since
		t.shown = append([]byte(nil), t.shown[len(t.shown)-kept:]...)
	}
	t.tell()
}

// A part is what was shown from an offset on.
type part struct {
	from    int64
	data    []byte
	exit    *terminal.Exit  // nil: there may be more
	changed <-chan struct{} // closed when there is
}

// since returns at most limit bytes of what was shown from an offset on, or
// from the first that is kept.
func (t *screen) since(from int64, limit int) part {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := t.about.Shown - int64(min(len(t.shown), kept))
	from = min(max(from, first), t.about.Shown)
	data := t.shown[len(t.shown)-int(t.about.Shown-from):]
	p := part{from: from, data: append([]byte(nil), data[:min(len(data), limit)]...), changed: t.changed}
	if len(data) <= limit {
		p.exit = t.about.Exit
	}
	return p
}

// read answers when there is something to read.
func (t *screen) read(ctx context.Context, r terminal.Request) terminal.Answer {
	t.looks(r.ID)
	late := time.NewTimer(terminal.Patience)
	defer late.Stop()
	for waiting := true; ; {
		p := t.since(r.From, terminal.MaxOutput)
		if len(p.data) > 0 || p.exit != nil || !waiting {
			return terminal.Answer{From: p.from, Data: p.data, Exit: p.exit}
		}
		select {
		case <-p.changed:
		case <-late.C:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
	}
}

func (t *screen) looks(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.viewers) < 10*typists {
		t.viewers[id] = time.Now()
	}
}

// write takes what is typed, if it continues what the same one has typed
// before, and as much as there is room for.
func (t *screen) write(r terminal.Request) (terminal.Answer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken, known := t.typed[r.ID]
	switch {
	case t.about.Exit != nil:
		return terminal.Answer{}, control.Refuse(control.Over, "the terminal's program has ended")
	case !known && len(t.typed) >= typists:
		return terminal.Answer{}, control.Refuse(control.Busy, "%d have typed in this terminal, as many as may", typists)
	}
	if again := taken - r.From; again >= 0 && again <= int64(len(r.Data)) {
		data := r.Data[again:]
		data = data[:min(len(data), pending-len(t.waiting))]
		t.waiting = append(t.waiting, data...)
		taken += int64(len(data))
	}
	t.typed[r.ID] = taken
	select {
	case t.news <- struct{}{}:
	default:
	}
	return terminal.Answer{From: taken}, nil
}

// enter writes what was typed. The program decides when that is read.
func (t *screen) enter() {
	for range t.news {
		t.mu.Lock()
		data, over := t.waiting, t.about.Exit != nil
		t.mu.Unlock()
		if over {
			return
		}
		for len(data) > 0 {
			n, err := t.inner.Write(data[:min(len(data), 1024)])
			if err != nil && n == 0 {
				if os.IsTimeout(err) {
					continue
				}
				return // it is over, or about to be
			}
			t.mu.Lock()
			t.waiting = t.waiting[n:]
			data = t.waiting
			t.mu.Unlock()
		}
	}
}

func (t *screen) resize(rows, columns uint16) error {
	if rows == 0 || columns == 0 {
		return control.Refuse(control.Invalid, "a terminal has at least one row and one column")
	}
	if err := t.inner.Resize(rows, columns); err != nil {
		return control.Refuse(control.Over, "the terminal's program has ended")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.about.Rows, t.about.Columns = rows, columns
	if len(t.resized) < 100 {
		t.resized = append(t.resized, size{rows, columns})
	}
	return nil
}
