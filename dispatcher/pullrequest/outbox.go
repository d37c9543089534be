// Package pullrequest opens the pull requests of jobs that ask for one, and writes comments to
// their issues.
//
//	record of a job that has succeeded ─▶ Note ─▶ (where this process leads) ─▶ Find ─▶ Create | Update ─▶ record
//	record of a job whose agent asks   ─▶ Note ─▶ (where this process leads) ─▶ Comment
//
// The records are the outbox: a job is in it from its success until its record says for
// which attempt the pull request was opened, so whoever leads after a crash finds it there.
// Each step may be repeated: before a pull request is made, the forge is asked for an open
// one of the same branch, and the issue for the same comment. A call is made only while the record has the attempt whose
// result it is about, and what came of it is written by compare-and-set.
//
// The leader alone has the credentials of the forges. One goroutine for each forge makes one
// call at a time, as they ask their clients to do.
package pullrequest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs/amend"

	"github.com/penstock-run/penstock/dispatcher/forge"
	"github.com/penstock-run/penstock/dispatcher/mark"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/visible"
)

const (
	// againFirst and againMost are how long a job waits after a failed try.
	againFirst = 5 * time.Second
	againMost  = 10 * time.Minute
	// conflicts is after how many refusals of a pull request that is not there either it is
	// given up: a forge may see a new branch a moment late.
	conflicts = 3
	// callWithin bounds all requests about one pull request.
	callWithin = 2 * time.Minute
)

// Config is what an [Outbox] works with.
type Config struct {
	Queue  *queue.Queue
	Log    *session.Log
	Store  *artifact.Store
	Forges []forge.Forge
	// PublicURL is where those who read a pull request reach the dashboard; empty: nowhere.
	PublicURL string
	Logger    *slog.Logger

	first time.Duration // zero: againFirst
}

// An Outbox has the jobs whose pull requests are to be opened. Its methods may be called
// from any goroutine.
type Outbox struct {
	cfg   Config
	lines []*line
}

// New returns an outbox. It does no I/O.
func New(cfg Config) *Outbox {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.first = cmp.Or(cfg.first, againFirst)
	o := &Outbox{cfg: cfg}
	for _, f := range cfg.Forges {
		o.lines = append(o.lines, &line{of: o, forge: f, jobs: map[string]*waiting{}, told: map[string]string{}, opened: map[string][]string{}, poke: make(chan struct{}, 1)})
	}
	return o
}

// Check reports why a job could have no pull request here.
func (o *Outbox) Check(job jobs.Job) error {
	if o.line(job.Repo.URL) != nil {
		return nil
	}
	var names []string
	for _, l := range o.lines {
		names = append(names, l.forge.Name())
	}
	return fmt.Errorf("repository %s is on no forge of this pool (%s): name its address there, https://… or git@…", visible.Line(jobs.WithoutCredentials(job.Repo.URL)), strings.Join(names, ", "))
}

func (o *Outbox) line(address string) *line {
	for _, l := range o.lines {
		if _, ok := l.forge.Repository(address); ok {
			return l
		}
	}
	return nil
}

// Note takes what a record says now.
func (o *Outbox) Note(c record.Change) {
	if c.Gone || c.Record.Repo == "" {
		return
	}
	due, asking, open := c.Record.PullDue(), asks(c.Record), isOpen(c.Record)
	if !due && !asking && !open && c.Record.Labels[mark.IssueLabel] == "" {
		return
	}
	l := o.line(c.Record.Repo)
	if l == nil {
		return
	}
	if open {
		l.noteOpened(c.Record)
	}
	switch {
	case due, asking && !l.asked(c.Record):
		l.enter(c.ID)
	case !asking:
		l.tell(c.ID, "")
	}
}

// Run opens and updates pull requests until ctx ends. It is for the leader alone; while two lead for
// a moment, each asks the forge before it makes one.
func (o *Outbox) Run(ctx context.Context) {
	var g sync.WaitGroup
	for _, l := range o.lines {
		g.Go(func() { l.run(ctx) })
	}
	g.Wait()
}

// A line is the jobs that wait for one forge.
type line struct {
	of    *Outbox
	forge forge.Forge
	poke  chan struct{} // has a value after a job was entered

	mu   sync.Mutex
	jobs map[string]*waiting
	told map[string]string // the question that was written to the issue of a job
	// opened has the jobs with the last pull requests of each repository, the newest last.
	opened map[string][]string
	// until is when the forge may be asked again.
	until time.Time
}

type waiting struct {
	at        time.Time // when it is tried next
	tries     int
	conflicts int
	renewed   bool // the record has changed since it was entered
}

func (l *line) enter(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.jobs[id]; w != nil {
		w.renewed = true
		return
	}
	l.jobs[id] = &waiting{}
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// next returns the job that is due, or how long none will be.
func (l *line) next(now time.Time) (id string, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.jobs) == 0 {
		return "", time.Hour
	}
	for job, w := range l.jobs {
		if id == "" || w.at.Before(l.jobs[id].at) {
			id = job
		}
	}
	at := l.jobs[id].at
	if l.until.After(at) {
		at = l.until
	}
	return id, at.Sub(now)
}

func (l *line) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		id, wait := l.next(time.Now())
		if id != "" && wait <= 0 {
			l.try(ctx, id)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-l.poke:
		case <-timer.C:
		}
	}
}

// try delivers one job, and decides on what came of it.
func (l *line) try(ctx context.Context, id string) {
	call, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	rec, err := l.of.cfg.Queue.Get(call, id)
	if err == nil && asks(rec) {
		l.tryAsk(call, rec)
		return
	}
	if err == nil && rec.PullDue() {
		err = l.deliver(call, rec)
	}
	if ctx.Err() != nil {
		return // the next leader finds it
	}
	if err == nil || errors.Is(err, jobs.ErrFenced) || errors.Is(err, jobs.ErrNotFound) || errors.Is(err, jobs.ErrPurged) {
		l.leave(id) // it is done, or not wanted any more; another attempt enters it again
		return
	}
	if l.again(id, err) {
		_ = l.say(call, rec, jobs.PullRequest{Message: err.Error()}) // the next try says it
		return
	}
	// A refusal that is not in the record must not be forgotten: the record would go on saying that
	// the pull request is wanted, and no try would follow until another process leads.
	if err := l.say(call, rec, jobs.PullRequest{State: jobs.PullRefused, Epoch: rec.Epoch, Message: err.Error()}); err != nil && l.again(id, err) {
		return
	}
	l.leave(id)
}

// leave forgets a job, unless its record has changed meanwhile: then it is looked at again.
func (l *line) leave(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.jobs[id]; w != nil && w.renewed {
		l.jobs[id] = &waiting{}
		return
	}
	delete(l.jobs, id)
}

// again says when a job is tried again after an error, and reports whether it is.
func (l *line) again(id string, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.jobs[id]
	refused, ok := errors.AsType[*forge.Error](err)
	switch {
	case ok && refused.Kind == forge.Busy: // which is not the job's fault
		l.until = time.Now().Add(refused.Wait)
		return true
	case ok && refused.Kind == forge.Invalid:
		return false
	case ok && refused.Kind == forge.Conflict:
		if w.conflicts++; w.conflicts >= conflicts {
			return false
		}
	}
	wait := min(l.of.cfg.first<<min(w.tries, 10), againMost)
	w.tries++
	// Those that failed together must not come back together.
	w.at = time.Now().Add(wait + time.Duration(rand.Int64N(int64(wait)/4+1)))
	if ok && refused.Kind == forge.Denied { // no other call would do better
		l.until = w.at
	}
	return true
}

// say writes what keeps a pull request, beside what is known of it, if that is new. A job that
// has another attempt by then needs no note of this one.
func (l *line) say(ctx context.Context, rec jobs.Record, pr jobs.PullRequest) error {
	if rec.PullRequest == nil {
		return nil // the record could not be read
	}
	known := *rec.PullRequest
	next := known
	next.State, next.Message = cmp.Or(pr.State, known.State), shorten(pr.Message, 500)
	next.Epoch = cmp.Or(pr.Epoch, known.Epoch)
	if next == known {
		return nil
	}
	l.of.cfg.Logger.With(rec.LogFields()...).Warn("pull request", "forge", l.forge.Name(), "state", next.State, "err", next.Message)
	err := amend.SetPullRequest(ctx, l.of.cfg.Queue, rec, next)
	if errors.Is(err, jobs.ErrFenced) || errors.Is(err, jobs.ErrNotFound) || errors.Is(err, jobs.ErrPurged) {
		return nil
	}
	if err != nil {
		l.of.cfg.Logger.With(rec.LogFields()...).Warn("note the pull request", "err", err)
	}
	return err
}

// deliver opens or updates the pull request of a job, and writes its record.
func (l *line) deliver(ctx context.Context, rec jobs.Record) error {
	res, err := l.of.cfg.Store.Result(ctx, rec)
	if err != nil {
		return err
	}
	next := *rec.PullRequest
	next.Epoch, next.Message = rec.Epoch, ""
	if res.Branch == "" {
		next.Message = "no branch was made: the agent changed nothing"
		if next.Number == 0 {
			next.State = jobs.PullNone
		}
		return amend.SetPullRequest(ctx, l.of.cfg.Queue, rec, next)
	}
	job, err := l.of.cfg.Queue.Job(ctx, rec.ID)
	if err != nil {
		return err
	}
	text, err := l.compose(ctx, rec, res, job)
	if err != nil {
		return err
	}
	repo, _ := l.forge.Repository(rec.Repo)
	pull, err := l.put(ctx, rec, forge.Change{Repo: repo, Head: res.Branch, Base: job.Deliver.Base, Title: text.title, Body: text.body})
	if err != nil {
		return err
	}
	var notes []string
	if rec.PullRequest.Number != pull.Number { // afterwards they are for people to change
		decorated, err := l.decorate(ctx, repo, pull.Number, job.Deliver)
		if err != nil {
			return err
		}
		announced, err := l.announce(ctx, rec, job, pull)
		if err != nil {
			return err
		}
		notes = append(notes, decorated, announced)
	}
	shown, err := l.showChecks(ctx, rec, res, text.checks)
	if err != nil {
		return err
	}
	notes = slices.DeleteFunc(append(notes, shown), func(note string) bool { return note == "" })
	next.Message = strings.Join(notes, "; ")
	next.State, next.URL, next.Number = jobs.PullOpen, visible.Line(pull.URL), pull.Number
	l.of.cfg.Logger.With(rec.LogFields()...).Info("pull request is open", "forge", l.forge.Name(), "number", pull.Number)
	if err := amend.SetPullRequest(ctx, l.of.cfg.Queue, rec, next); err != nil {
		return err
	}
	l.noteOpened(rec) // the next one is composed before the record comes back
	return nil
}

// put makes the pull request of a branch, or updates the one that there is.
func (l *line) put(ctx context.Context, rec jobs.Record, c forge.Change) (forge.Pull, error) {
	found, err := l.forge.Find(ctx, c.Repo, c.Head)
	if err != nil {
		return forge.Pull{}, err
	}
	if err := l.current(ctx, rec); err != nil {
		return forge.Pull{}, err
	}
	if found == nil {
		made, err := l.forge.Create(ctx, c)
		if refused, ok := errors.AsType[*forge.Error](err); !ok || refused.Kind != forge.Conflict {
			return made, err
		}
		var again error
		if found, again = l.forge.Find(ctx, c.Repo, c.Head); again != nil || found == nil {
			return forge.Pull{}, cmp.Or(again, err)
		}
	}
	body, ours := replace(found.Body, rec.ID, c.Body)
	if !ours || body == found.Body { // a person has opened it, or it is as it should be
		return *found, nil
	}
	return *found, l.forge.Update(ctx, c.Repo, found.Number, body)
}

// current refuses to go on for an attempt that is not the job's last any more.
func (l *line) current(ctx context.Context, rec jobs.Record) error {
	now, err := l.of.cfg.Queue.Get(ctx, rec.ID)
	if err == nil && (now.Epoch != rec.Epoch || !now.PullDue()) {
		err = fmt.Errorf("pull request of job %s: %w", rec.ID, jobs.ErrFenced)
	}
	return err
}

// decorate adds what the job asks for. Where the forge does not take that, the pull
// request is open without it, and the message says so.
func (l *line) decorate(ctx context.Context, repo string, number int, d jobs.Deliver) (message string, err error) {
	if len(d.Labels) == 0 && len(d.Reviewers) == 0 {
		return "", nil
	}
	return accepted("without its labels or reviewers", l.forge.Decorate(ctx, repo, number, d.Labels, d.Reviewers))
}

// shorten makes one line of a text of strangers.
func shorten(text string, most int) string {
	line := []rune(visible.Line(text))
	if len(line) <= most {
		return string(line)
	}
	return string(line[:most-1]) + "…"
}
