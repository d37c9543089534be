package feed

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

const (
	// behind is how long a reader waits for its window to come as far as another one had:
	// longer than a source may be behind that was not notified.
	behind = 5 * time.Second
	// silent is for how long a worker that has not said that it has ended may say
	// nothing: the broker forgets it then.
	silent = 15 * time.Second
	// lookForDead is how often workers are looked for that have died.
	lookForDead = 5 * time.Second
)

// A window is the newest changes, for readers that follow them.
type window struct {
	kept    int
	readers int           // its owner counts them
	ready   chan struct{} // closed once it knows where it begins, or has failed
	end     func()        // ends it, and waits until it has
	epoch   string        // set before ready

	mu    sync.Mutex
	err   error // why it cannot go on
	at    place // behind the newest item
	items []Item
	first uint64            // the number of items[0]
	more  chan struct{}     // closed when there is another item, or err
	jobs  map[string]Change // those that are executing, as they were told last
	alive map[string]alive  // workers, by their key
}

// alive is a worker as it was last told, and when it was last heard of.
type alive struct {
	name string
	told string
	at   time.Time
}

func newWindow(kept int) *window {
	return &window{kept: kept, ready: make(chan struct{}), more: make(chan struct{}), jobs: map[string]Change{}, alive: map[string]alive{}}
}

// run follows the sources until end is called.
func (w *window) run(ctx context.Context, conn *wire.Conn, sources []source) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	w.end = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		err := w.begin(ctx, conn, sources)
		if err != nil {
			w.fail(err)
		}
		close(w.ready)
		if err == nil {
			w.fail(w.follow(ctx, conn, sources))
		}
	}()
}

// begin finds out where the sources end now.
func (w *window) begin(ctx context.Context, conn *wire.Conn, sources []source) error {
	at := place{at: time.Now()}
	for i, src := range sources {
		var info struct {
			Created time.Time `json:"created"`
			State   struct {
				Last uint64 `json:"last_seq"`
			} `json:"state"`
		}
		if err := conn.Ask(ctx, "STREAM.INFO."+src.stream, nil, &info); err != nil {
			return fmt.Errorf("follow the changes of the pool: %w", err)
		}
		if i == 0 {
			w.epoch = strconv.FormatInt(info.Created.UnixMilli(), 36)
		}
		at.seqs = append(at.seqs, info.State.Last)
	}
	at.epoch = w.epoch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = at
	return nil
}

// follow adds what comes until ctx ends.
func (w *window) follow(ctx context.Context, conn *wire.Conn, sources []source) error {
	begin := w.at.seqs // nothing adds to it yet
	g, ctx := errgroup.WithContext(ctx)
	for i, src := range sources {
		g.Go(func() error {
			for m, err := range conn.Tail(ctx, src.span(begin[i]+1), src.notify, nil) {
				if err != nil {
					return fmt.Errorf("follow the changes of the pool: %w", err)
				}
				w.add(i, src, m)
			}
			return ctx.Err()
		})
	}
	g.Go(func() error {
		tick := time.NewTicker(lookForDead)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				w.bury(now)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return g.Wait()
}

// add makes an item of a message of a source, unless it is no change, or readers have been
// told the same.
func (w *window) add(i int, src source, m wire.Message) {
	kind, change, ok := src.read(m)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = w.at.with(i, m.Seq)
	switch {
	case !ok:
		return
	case kind == Job && w.jobs[change.ID] == change: // a heartbeat
		return
	case kind == Job:
		if delete(w.jobs, change.ID); change.State == jobs.Executing {
			w.jobs[change.ID] = change
		}
	case kind == Worker && !w.heard(m, &change):
		return
	}
	w.at.at = time.Now()
	w.append(newItem(w.at, kind, change))
}

// heard notes that a worker has said something, and reports whether that is news. The
// name of one that has ended stands in what it said before.
func (w *window) heard(m wire.Message, change *Change) bool {
	before, known := w.alive[m.Subject]
	if change.Gone {
		delete(w.alive, m.Subject)
		change.Name = before.name
		return true
	}
	text := string(m.Data)
	w.alive[m.Subject] = alive{change.Name, text, time.Now()}
	return !known || before.told != text
}

// bury tells of workers that have said nothing for too long.
func (w *window) bury(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, worker := range w.alive {
		if now.Sub(worker.at) > silent {
			delete(w.alive, key)
			w.append(newItem(w.at, Worker, Change{Name: worker.name, Gone: true}))
		}
	}
}

// append is called with the lock held.
func (w *window) append(item Item) {
	if w.items = append(w.items, item); len(w.items) >= 2*w.kept {
		drop := len(w.items) - w.kept
		w.items = slices.Clone(w.items[drop:])
		w.first += uint64(drop)
	}
	close(w.more)
	w.more = make(chan struct{})
}

// fail lets all readers end with an error.
func (w *window) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	close(w.more)
	w.more = make(chan struct{})
}

// failure is why the window cannot go on; nil: it goes on.
func (w *window) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// begun waits until the window knows where it begins.
func (w *window) begun(ctx context.Context) error {
	select {
	case <-w.ready:
		return w.failure()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A reader is how far one has come in a window.
type reader struct {
	w     *window
	item  uint64 // the number of its next item
	found bool   // it goes on behind a place that the window has
	began place  // of the window when it came
}

// reach waits until the window has come as far as a place, which a reader has from another
// window, and not for long: one that is never reached is of a broker that has lost
// something.
func (w *window) reach(ctx context.Context, to place) {
	ctx, cancel := context.WithTimeout(ctx, behind)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !w.has(to) && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// has reports whether the window has come as far as a place, or cannot go on.
func (w *window) has(to place) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil || to.before(w.at)
}

// reader returns a reader that goes on behind a place of the window, or else at its end,
// and the item with which one begins there.
func (w *window) reader(after string) (*reader, Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &reader{w: w, item: w.first + uint64(len(w.items)), began: w.at}
	at := slices.IndexFunc(w.items, func(item Item) bool { return item.Place == after })
	if at >= 0 {
		r.found, r.item = true, w.first+uint64(at+1)
	}
	return r, w.reset()
}

// reset is called with the lock held.
func (w *window) reset() Item {
	at := w.at
	at.at = time.Now()
	return newItem(at, Reset, Change{})
}

// next returns the reader's next items, once there are some.
func (r *reader) next(ctx context.Context) ([]Item, error) {
	for {
		items, more, err := r.take()
		if len(items) > 0 || err != nil {
			return items, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// some is how many items a reader takes at once.
const some = 64

// take returns what is there for the reader, and what tells of more. One that has fallen
// behind begins anew.
func (r *reader) take() ([]Item, <-chan struct{}, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.w.err != nil {
		return nil, nil, r.w.err
	}
	if r.item < r.w.first {
		r.item = r.w.first + uint64(len(r.w.items))
		return []Item{r.w.reset()}, nil, nil
	}
	items := r.w.items[r.item-r.w.first:]
	items = items[:min(len(items), some)]
	r.item += uint64(len(items))
	return slices.Clone(items), r.w.more, nil
}
