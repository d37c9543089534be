// Package deliver sends events of jobs to webhooks.
//
//	log of events ─▶ feed of a webhook ─▶ line of a job ─▶ attempt ─2xx─▶ delivered
//	                                          ▲               │
//	                                          └── 5 s … 24 h ─┴─10th──▶ given up
//
// The dispatcher that leads runs a [Deliverer]. Each webhook has a feed of its own, which
// reads the log behind its position and makes so many attempts at once; so a receiver
// that is slow or dead holds up no other. The events of one job wait in one line: one that
// failed holds back later ones of its job, and none of another.
//
// It promises that each event is delivered at least once to each webhook that wants it,
// unless it is given up or the webhook is disabled, however often processes are killed and
// leaders change; and that of the events of one job none is delivered for the first time
// before an earlier one has been delivered or given up. An event may be delivered twice,
// under the same id: its attempt was under way when a leader ended.
//
// What is held in memory of a webhook is bounded: beyond [mostWaiting] events that wait it
// reads no further, and the log keeps the rest.
package deliver

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/pause"
	"github.com/penstock-run/penstock/jobs/webhook"
)

const (
	// atOnce is how many attempts a webhook makes at the same time.
	atOnce = 8
	// mostWaiting is how many events of a webhook wait before it stops to read.
	mostWaiting = 10_000
	// lookEvery is how often webhooks are looked for whose notification was lost.
	lookEvery = 10 * time.Second
	// testWithin bounds a test: whoever asks for it waits for the answer.
	testWithin = 10 * time.Second
)

// A schedule says how long to wait after each failed attempt, and after how long without a
// success a webhook is disabled.
type schedule struct {
	delays   []time.Duration
	patience time.Duration
}

// standard is the schedule of Standard Webhooks.
var standard = schedule{
	delays: []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	},
	patience: 5 * 24 * time.Hour,
}

// after is how long to wait after so many failed attempts, a tenth more or less: receivers
// that come back must not meet all senders at once. It is not ok after the last one.
func (s schedule) after(attempts int) (wait time.Duration, ok bool) {
	if attempts < 1 || attempts > len(s.delays) {
		return 0, false
	}
	wait = s.delays[attempts-1]
	return wait + time.Duration((rand.Float64()-0.5)/5*float64(wait)), true
}

// Config is what a deliverer works with.
type Config struct {
	Store  *webhook.Store
	Sender *Sender
	// Job reads the record of a job, for webhooks that want events of certain jobs.
	Job    func(ctx context.Context, id string) (jobs.Record, error)
	Logger *slog.Logger
	Hooks  Hooks

	schedule schedule // zero: standard
}

// Hooks let a program watch deliveries. Every field may be nil.
type Hooks struct {
	// Attempted: an attempt has ended as an [operation.Delivery] says.
	Attempted func(webhook, state string)
	// Waiting: this is the oldest event that a webhook has not delivered; zero: none waits.
	Waiting func(webhook string, oldest time.Time)
	// Disabled: so many webhooks are disabled now.
	Disabled func(n int)
}

// A Deliverer delivers events. Make one with New.
type Deliverer struct {
	cfg Config
	log *slog.Logger
}

// New returns a deliverer. It does no I/O.
func New(cfg Config) *Deliverer {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.schedule.delays == nil {
		cfg.schedule = standard
	}
	return &Deliverer{cfg: cfg, log: cfg.Logger}
}

// Check refuses a webhook to whose URL this deliverer would send nothing.
func (d *Deliverer) Check(url string) error { return d.cfg.Sender.Check(url) }

// Test sends a test event to a webhook, once, and keeps what came of it.
func (d *Deliverer) Test(ctx context.Context, name string) (operation.Delivery, error) {
	hook, err := d.cfg.Store.Hook(ctx, name)
	if err != nil {
		return operation.Delivery{}, err
	}
	m, err := d.cfg.Store.Test(name)
	if err != nil {
		return operation.Delivery{}, err
	}
	sending, cancel := context.WithTimeout(ctx, testWithin)
	defer cancel()
	at := time.Now().UTC()
	a := d.cfg.Sender.send(sending, hook, m)
	d.cfg.Sender.close()
	made := a.delivery(hook, m, at)
	made.ID, made.Attempt = webhook.DeliveryID(name, 0), 1
	if a.err != nil {
		made.State = operation.DeliveryFailed
	}
	return made, d.cfg.Store.Append(ctx, hook.ID, made)
}

// delivery is what is kept of an attempt that was made at a time.
func (a answer) delivery(hook webhook.Hook, m webhook.Message, at time.Time) operation.Delivery {
	made := operation.Delivery{
		Webhook: hook.Name, Event: m.ID, Type: string(m.Event.Kind), Job: m.Event.Job, At: at,
		Took: jobs.Duration(a.took.Round(time.Millisecond)), State: operation.DeliveryDone, Status: a.status, Response: a.response,
	}
	if a.err != nil {
		made.Error = a.err.Error()
	}
	return made
}

// Run delivers events until ctx ends. It is for the dispatcher that leads; while two do so
// for a moment, events may be delivered twice.
func (d *Deliverer) Run(ctx context.Context) {
	defer d.tellDisabled(0) // the next leader counts them
	for ctx.Err() == nil {
		if err := d.follow(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("webhooks cannot be followed", "err", err)
			pause.For(ctx, time.Second)
		}
	}
}

// follow keeps a feed for each webhook, until ctx ends or it fails.
func (d *Deliverer) follow(ctx context.Context) error {
	notified, stop, err := d.cfg.Store.Notify()
	if err != nil {
		return err
	}
	defer stop()
	if err := d.cfg.Store.Sweep(ctx); err != nil {
		return err
	}
	feeds := map[string]*running{}
	defer func() {
		for _, f := range feeds {
			f.end()
		}
		d.cfg.Sender.close()
	}()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if err := d.look(ctx, feeds); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-notified:
		case <-tick.C:
		}
	}
}

// A running feed is one with its goroutine.
type running struct {
	*feed
	stop context.CancelFunc
	done sync.WaitGroup
}

func (r *running) end() {
	r.stop()
	r.done.Wait()
}

// look begins and ends feeds as the webhooks want it, and tells each what clients have
// asked it for.
func (d *Deliverer) look(ctx context.Context, feeds map[string]*running) error {
	hooks, err := d.cfg.Store.Hooks(ctx)
	if err != nil {
		return err
	}
	there := map[string]webhook.Hook{}
	for _, h := range hooks {
		there[h.ID] = h
	}
	for id, f := range feeds {
		if h, ok := there[id]; !ok || !h.Same(f.hook) {
			f.end()
			delete(feeds, id)
		}
	}
	disabled := 0
	for id, h := range there {
		f := feeds[id]
		if f == nil {
			f = &running{feed: newFeed(d, h)}
			running, stop := context.WithCancel(ctx)
			f.stop, feeds[id] = stop, f
			f.done.Go(func() { f.run(running) })
		}
		if f.disabled.Load() {
			disabled++
		}
		select {
		case f.poke <- struct{}{}:
		default: // it has been told so already
		}
	}
	d.tellDisabled(disabled)
	return nil
}

// tellDisabled says how many webhooks are disabled.
func (d *Deliverer) tellDisabled(n int) {
	if hook := d.cfg.Hooks.Disabled; hook != nil {
		hook(n)
	}
}
