package deliver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/pause"
	"github.com/penstock-run/penstock/jobs/webhook"
)

const (
	// saveEvery is how often the position is stored while events are delivered, and
	// idleSave how often while there are none to deliver: what is behind the position is
	// read again after a crash.
	saveEvery = 2 * time.Second
	idleSave  = 30 * time.Second
	// storeAgain is how long a write waits that the broker has not taken.
	storeAgain = 5 * time.Second
)

// A feed delivers the events of one webhook.
type feed struct {
	d    *Deliverer
	hook webhook.Hook
	// poke has a value after clients may have asked for redeliveries.
	poke     chan struct{}
	disabled atomic.Bool
	handed   atomic.Uint64 // up to here the reader has handed every event over

	// What follows is of the goroutine of run.
	state   webhook.State
	saved   time.Time // when the state was stored
	changed bool      // more than the position has changed since
	lines   map[string]*line
	due     dueLines
	waiting int                 // events in lines
	open    map[uint64]struct{} // read, and neither delivered nor in a line of the bucket
	entered uint64              // up to here the reader has given the loop every event
	done    map[uint64]bool     // behind that, and delivered: by an earlier leader, or from a line that it has stored
	results chan result
	running int
}

func newFeed(d *Deliverer, hook webhook.Hook) *feed {
	return &feed{
		d: d, hook: hook, poke: make(chan struct{}, 1), lines: map[string]*line{}, open: map[uint64]struct{}{}, results: make(chan result),
	}
}

// run delivers until ctx ends or the webhook is disabled. From then on nothing waits here:
// the webhook may be removed, or another dispatcher delivers its events.
func (f *feed) run(ctx context.Context) {
	defer f.tellOldest(time.Time{})
	for {
		err := f.load(ctx)
		if err == nil {
			break
		}
		if pause.For(ctx, time.Second); ctx.Err() != nil {
			return
		}
		f.d.log.Warn("webhook cannot begin", "webhook", f.hook.Name, "err", err)
	}
	if f.state.Disabled != nil {
		f.disabled.Store(true)
		return
	}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	heads := make(chan webhook.Head)
	from := f.state.Read
	tasks.Go(func() { f.read(ctx, from, heads) })
	f.loop(ctx, heads, &tasks)
}

// load reads what the leader before has left.
func (f *feed) load(ctx context.Context) error {
	store, id := f.d.cfg.Store, f.hook.ID
	var err error
	if f.state, err = store.State(ctx, id); err != nil {
		return err
	}
	f.state.Read = max(f.state.Read, f.hook.From)
	f.entered = f.state.Read
	f.handed.Store(f.entered)
	if f.done, err = store.Delivered(ctx, id); err != nil {
		return err
	}
	stored, err := store.Lines(ctx, id)
	if err != nil {
		return err
	}
	f.saved = time.Now()
	for name, s := range stored {
		l := &line{Line: s, live: true, place: -1}
		if !l.Asked() && f.done[l.Events[0].Seq] { // it died before it could say so
			l.Events, l.Attempts, l.Next, l.saveAt = l.Events[1:], 0, f.saved, f.saved
		}
		f.waiting += len(l.Events)
		f.lines[name] = l
		f.due.put(l)
	}
	return nil
}

// read hands over the events behind a position that the webhook may want.
func (f *feed) read(ctx context.Context, from uint64, heads chan<- webhook.Head) {
	for ctx.Err() == nil {
		for head, err := range f.d.cfg.Store.Heads(ctx, from) {
			if err != nil {
				if ctx.Err() == nil {
					f.d.log.Warn("webhook cannot read events", "webhook", f.hook.Name, "err", err)
				}
				break
			}
			if f.hook.Selects(head.Kind) {
				select {
				case heads <- head:
				case <-ctx.Done():
					return
				}
			}
			from = head.Seq
			f.handed.Store(from)
		}
		pause.For(ctx, time.Second)
	}
}

// loop is the only goroutine that knows which events wait: it takes what is read, starts
// a task for each line that is due, and takes back what came of it.
func (f *feed) loop(ctx context.Context, heads <-chan webhook.Head, tasks *sync.WaitGroup) {
	save := time.NewTicker(saveEvery)
	defer save.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	for ctx.Err() == nil && !f.disabled.Load() {
		f.startTasks(ctx, tasks)
		in := heads
		if f.waiting >= mostWaiting {
			in = nil
		}
		if f.running < atOnce {
			due.Reset(f.due.wait(time.Now()))
		} else {
			due.Reset(time.Hour) // a task has to end first
		}
		select {
		case <-ctx.Done():
		case head := <-in:
			f.enter(head)
		case r := <-f.results:
			f.settle(ctx, r)
		case <-due.C:
		case <-f.poke:
			f.again(ctx)
		case <-save.C:
			f.save(ctx)
		}
	}
}

func (f *feed) startTasks(ctx context.Context, tasks *sync.WaitGroup) {
	for f.running < atOnce {
		l := f.due.take(time.Now())
		if l == nil {
			return
		}
		l.busy = true
		f.running++
		t := f.newTask(l)
		tasks.Go(func() {
			r := t.run(ctx)
			select {
			case f.results <- r:
			case <-ctx.Done():
			}
		})
	}
}

// enter puts an event behind those of its job.
func (f *feed) enter(head webhook.Head) {
	f.entered = head.Seq
	if f.done[head.Seq] {
		delete(f.done, head.Seq)
		return
	}
	name := head.Job
	if jobs.CheckToken("job", name) != nil {
		name = "none"
	}
	l := f.lines[name]
	if l == nil {
		l = f.newLine(name)
	}
	if l.has(head.Seq) {
		return // the leader before has stored it
	}
	l.Events = append(l.Events, head.Place)
	f.open[head.Seq] = struct{}{}
	f.waiting++
	if l.live {
		l.saveAt = time.Now()
	}
	if !l.busy {
		f.due.put(l)
	}
}

func (f *feed) newLine(name string) *line {
	l := &line{Line: webhook.Line{Name: name, Next: time.Now()}, place: -1}
	f.lines[name] = l
	return l
}

// again has events delivered that clients have asked for: those that wait are due now,
// the others get lines of their own.
func (f *feed) again(ctx context.Context) {
	asked, err := f.d.cfg.Store.Asked(ctx, f.hook.ID)
	if err != nil {
		f.d.log.Warn("webhook cannot read what to deliver again", "webhook", f.hook.Name, "err", err)
		return
	}
	for _, place := range asked {
		l := f.lines[webhook.Redelivery(place.Seq)]
		for _, other := range f.lines {
			if l == nil && other.has(place.Seq) {
				l = other
			}
		}
		if l == nil {
			l = f.newLine(webhook.Redelivery(place.Seq))
			l.Events = []webhook.Place{place}
			l.saveAt = l.Next // first, since the request is forgotten then
			l.asked = []uint64{place.Seq}
			f.waiting++
			f.due.put(l)
			continue
		}
		if slices.Contains(l.asked, place.Seq) {
			continue // a task is to make the attempt, or makes it
		}
		l.asked = append(l.asked, place.Seq)
		if !l.busy {
			l.Next = time.Now()
			f.due.put(l)
		}
	}
}

// answered is again for a line that a task has worked on: of the requests it has met some, and
// may not have known others.
func (f *feed) answered(ctx context.Context, l *line, r result) {
	var open []uint64
	for i, seq := range l.asked {
		if slices.Contains(r.met, seq) {
			continue
		}
		if !l.has(seq) { // the task has delivered it
			if err := f.d.cfg.Store.TakeAsked(ctx, f.hook.ID, seq); err != nil {
				f.d.log.Warn("webhook cannot forget what it was asked for", "webhook", f.hook.Name, "err", err)
			}
			continue
		}
		if i >= r.asked { // else the task has said when it can be tried
			l.Next = time.Now()
		}
		open = append(open, seq)
	}
	l.asked = open
}

// settle takes back what a task has done.
func (f *feed) settle(ctx context.Context, r result) {
	l := r.of
	l.busy, l.live = false, r.live
	f.running--
	joined := l.Events[r.known:]
	f.waiting -= len(l.Events)
	l.Line = r.line
	for _, place := range joined {
		if !l.has(place.Seq) {
			l.Events = append(l.Events, place)
		}
	}
	f.waiting += len(l.Events)
	f.answered(ctx, l, r)
	for _, place := range r.settled {
		delete(f.open, place.Seq)
		if place.Seq > f.entered {
			f.done[place.Seq] = true
		}
	}
	if r.failed {
		l.saveAt = time.Now().Add(storeAgain)
	}
	if r.saved {
		l.saveAt = time.Time{}
		for _, place := range r.line.Events {
			delete(f.open, place.Seq)
		}
		if r.live && len(joined) > 0 {
			l.saveAt = time.Now()
		}
	}
	f.changed = true
	if len(l.Events) == 0 && l.saveAt.IsZero() {
		delete(f.lines, l.Name)
	} else {
		f.due.put(l)
	}
	if r.attempt != nil {
		f.judge(ctx, r)
	}
}

// judge keeps how the webhook does, and disables it where its receiver wants that, or has
// taken nothing for a long time.
func (f *feed) judge(ctx context.Context, r result) {
	made := *r.attempt
	if hook := f.d.cfg.Hooks.Attempted; hook != nil {
		hook(f.hook.Name, made.State)
	}
	if made.State == operation.DeliveryDone {
		f.state.Failing, f.state.Error = nil, ""
		return
	}
	if f.state.Failing == nil {
		f.state.Failing = &made.At
	}
	f.state.Error = made.Error
	reason := ""
	switch patience := f.d.cfg.schedule.patience; {
	case made.Status == 410:
		reason = "the receiver answered 410 Gone"
	case made.At.Sub(*f.state.Failing) >= patience:
		reason = fmt.Sprintf("no delivery has succeeded since %s: %s", f.state.Failing.Format(time.RFC3339), made.Error)
	case made.State == operation.DeliveryGivenUp:
		f.d.log.With(r.about...).Warn("event was not delivered", "webhook", f.hook.Name, "delivery", made.ID, "attempts", made.Attempt, "err", made.Error)
	}
	if reason == "" {
		return
	}
	f.state.Disabled = &operation.WebhookDisabled{At: time.Now().UTC(), Reason: reason}
	f.d.log.Warn("webhook is disabled", "webhook", f.hook.Name, "reason", reason)
	f.save(ctx)
}

// position is up to where each event has been delivered or is in a line of the bucket.
func (f *feed) position() uint64 {
	at := f.handed.Load()
	for seq := range f.open {
		at = min(at, seq-1)
	}
	return at
}

// tellOldest says when the oldest event happened that waits; zero: none does.
func (f *feed) tellOldest(at time.Time) {
	if hook := f.d.cfg.Hooks.Waiting; hook != nil {
		hook(f.hook.Name, at)
	}
}

// save stores the state, if that pays.
func (f *feed) save(ctx context.Context) {
	oldest := f.oldest()
	f.tellOldest(oldest)
	at := max(f.position(), f.state.Read)
	if f.state.Disabled == nil && !f.changed && (at == f.state.Read || time.Since(f.saved) < idleSave) {
		return
	}
	next := f.state
	next.Read, next.Waiting, next.Oldest = at, f.waiting, nil
	if !oldest.IsZero() {
		next.Oldest = &oldest
	}
	ctx, cancel := context.WithTimeout(ctx, storeAgain)
	defer cancel()
	saved, err := f.d.cfg.Store.SaveState(ctx, f.hook.ID, next)
	f.state.Rev = saved.Rev
	if err != nil {
		f.d.log.Warn("webhook cannot store its state", "webhook", f.hook.Name, "err", err)
		return
	}
	f.state, f.changed, f.saved = saved, false, time.Now()
	if saved.Disabled != nil {
		f.disabled.Store(true)
	}
}

// oldest is when the oldest event happened that waits; zero if there is none.
func (f *feed) oldest() time.Time {
	var at time.Time
	for _, l := range f.lines {
		if len(l.Events) > 0 && (at.IsZero() || l.Events[0].At.Before(at)) {
			at = l.Events[0].At
		}
	}
	return at
}
