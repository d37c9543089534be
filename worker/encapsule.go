package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/capsule"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/outcome"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// A memory is what outlives an agent's process of its conversation.
type memory struct {
	home     string          // that is kept; empty: there is none
	files    capsule.Pattern // of the conversation; empty: nobody knows them
	begun    *jobs.Capsule   // that the attempt goes on with; nil: it began anew
	last     jobs.Capsule    // that the attempt has stored
	told     map[string]bool // what the agent was told, besides the job's prompt
	heard    []string        // of that, what the conversation has; the oldest first
	within   []string        // of that, what its first prompt has
	turns    int             // of agents that have ended
	complain bool            // it was told that there is no capsule
}

// maxHeard bounds what is remembered of the prompts that an agent has heard.
const maxHeard = 1024

// tells notes that the agent is told something.
func (m *memory) tells(id string) {
	if m.told == nil {
		m.told = map[string]bool{}
	}
	m.told[id] = true
}

// hears notes that the agent has taken up what it was told.
func (m *memory) hears(id string) {
	if m.told[id] {
		delete(m.told, id)
		m.heard = append(m.heard, id)
		m.heard = m.heard[max(0, len(m.heard)-maxHeard):]
	}
}

func (m *memory) talk(id string) capsule.Conversation {
	return capsule.Conversation{Home: m.home, Files: m.files, ID: id}
}

// A position is how far a conversation has come.
type position struct {
	conversation string
	turn         int
	open         bool
	heard        []string
	asks         []string  // that are open
	since        time.Time // of the last sign of life, where the session is to be parked
}

// encapsule stores what the next attempt needs to go on from here. The work is
// what was changed in the workspace, which is stored by then. That it fails
// costs the attempt nothing: the capsule before it stays.
func (a *attempt) encapsule(ctx context.Context, at position, why jobs.Reason, work func(context.Context) (*jobs.Salvage, error)) (stored bool) {
	m := &a.memory
	if m.home == "" || m.files == "" || at.conversation == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, outcome.SalvageLimit)
	defer cancel()
	c := jobs.Capsule{
		Format: artifact.CapsuleFormat, Job: a.rec.ID, Epoch: a.claim.Epoch(), Agent: a.rec.Agent, Worker: a.cfg.Name,
		Conversation: at.conversation, Turn: at.turn, Open: at.open, Heard: at.heard, Asks: at.asks, Why: why,
	}
	err := a.fill(ctx, &c, work)
	if ctx.Err() != nil || errors.Is(err, capsule.ErrNone) || errors.Is(err, jobs.ErrFenced) {
		return false // the attempt ends, or its agent has said nothing yet
	}
	if err != nil {
		a.log.Warn("no capsule was stored", "err", err)
		if !m.complain {
			m.complain = true
			a.events.put(event.Make(event.Notice{Text: "the conversation cannot be continued from here, if the worker dies: " + err.Error()}))
		}
		return false
	}
	m.last = c
	a.events.put(event.Make(event.CapsuleStored(c)))
	return true
}

// stay has the capsule stored of a turn that is over, while the agent waits for
// more.
func (r *agentRun) stay() { r.offer(r.now()) }

// offer has the capsule stored of a position.
func (r *agentRun) offer(at position) {
	select {
	case <-r.rested: // nobody has looked at the last one
	default:
	}
	r.rested <- at // it has room, and only this method sends, under the lock
}

// now is how far the run has come. Its caller holds the lock.
func (r *agentRun) now() position {
	return position{
		conversation: r.decoder.Total().Session, turn: r.memory.turns + r.turn, open: r.state == agent.Working,
		heard: slices.Clone(r.memory.heard), asks: r.openAsks(),
	}
}

func (r *agentRun) position() position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now()
}

// takenUp notes which prompts the conversation has.
func (r *agentRun) takenUp(events []event.Event) {
	for _, e := range events {
		switch d := e.Payload.(type) {
		case event.TurnStarted:
			for _, id := range r.memory.within {
				r.memory.hears(id)
			}
		case event.InputState:
			if d.State == "taken" {
				r.memory.hears(d.Input)
			}
		}
	}
}

// keepCapsules stores a capsule after each turn until the agent has ended.
func (r *agentRun) keepCapsules(ctx context.Context) {
	for {
		select {
		case at := <-r.rested:
			stored := r.encapsule(ctx, at, "", r.snapshot)
			if !at.since.IsZero() {
				r.leaveOpen(at, stored)
			}
		case <-r.process.Done():
			return
		}
	}
}

// fill stores the parts of a capsule and then, if the lease is still ours, what
// makes a capsule of them.
func (a *attempt) fill(ctx context.Context, c *jobs.Capsule, work func(context.Context) (*jobs.Salvage, error)) (err error) {
	var packed bytes.Buffer
	if err := a.memory.talk(c.Conversation).Pack(&packed, a.cleanLine); err != nil {
		return fmt.Errorf("pack the conversation: %w", err)
	}
	if c.Work, err = work(ctx); err != nil {
		return err
	}
	if c.Home, err = a.cfg.Store.PutPart(ctx, c.Job, c.Epoch, bytes.NewReader(packed.Bytes())); err != nil {
		return err
	}
	c.Stored = time.Now().UTC()
	if _, err := a.claim.Assert(ctx); err != nil && !errors.Is(err, jobs.ErrCancelled) {
		return err
	}
	return a.cfg.Store.PutCapsule(ctx, *c, a.memory.last)
}

// cleanLine removes secrets from a line of a conversation, which is JSON still.
func (a *attempt) cleanLine(line []byte) []byte {
	if json.Valid(line) {
		return a.secrets.JSON(line)
	}
	return a.secrets.Text(line)
}

// snapshot stores what was changed in the workspace while it is still worked in.
func (a *attempt) snapshot(ctx context.Context) (*jobs.Salvage, error) {
	return a.out.Snapshot(ctx, a.space)
}

// seal stores the capsule of an attempt that is over, with what is stored of
// its work already.
func (a *attempt) seal(ctx context.Context, space *workspace.Workspace, v jobs.Ended) {
	work, complete := a.out.Work(space, v)
	if !complete {
		return
	}
	at := a.talk.at
	at.conversation = a.talk.resume
	a.encapsule(context.WithoutCancel(ctx), at, v.Reason, func(context.Context) (*jobs.Salvage, error) { return work, nil })
}

// before finds what the attempt begins from: a capsule, with what was changed in
// the workspace by then, or a salvage, if somebody has asked for that.
func (a *attempt) before(ctx context.Context, adapter agent.Adapter) (s *jobs.Salvage, c *jobs.Capsule, why string, err error) {
	a.memory.files = capsule.Pattern(adapter.About().Conversation)
	c, why, err = a.capsule(ctx, adapter)
	if err == nil && c == nil {
		s, err = a.lastSalvage(ctx)
	} else if c != nil {
		s = c.Work
	}
	return s, c, why, err
}

// capsule finds what the attempt goes on with: what an attempt before it has
// stored, if that one was cut short, or what the job was brought back or forked
// to go on with. It returns nil where it begins anew, and why if that might
// surprise.
func (a *attempt) capsule(ctx context.Context, adapter agent.Adapter) (c *jobs.Capsule, why string, err error) {
	if a.rec.Attempt < 2 && !a.bound() {
		return nil, "", nil
	}
	lost := ""
	if a.claim.Previous() != nil {
		lost = "no turn of an earlier attempt had ended"
	}
	if adapter.About().Conversation == "" {
		if lost != "" || a.bound() {
			lost = "agent " + adapter.About().Name + " cannot go on with a conversation on another worker"
		}
		return nil, lost, a.unbound(lost)
	}
	list, err := a.cfg.Store.Capsules(ctx, a.rec.ID)
	if err != nil {
		return nil, "", verdict.Failed(jobs.StoreFailed, "look for a capsule", err)
	}
	if c = a.begins(list); c == nil {
		return nil, lost, a.unbound("its capsule is not kept any more")
	}
	err = a.cfg.Store.Usable(ctx, *c, a.rec)
	if unfit, ok := errors.AsType[*artifact.CapsuleError](err); ok {
		return nil, unfit.Error(), a.unbound(unfit.Error())
	}
	return c, "", verdict.Failed(jobs.StoreFailed, "read the capsule", err)
}

// begins chooses among the capsules of the job's attempts: the last one's, if
// that goes on, else the one that the job is bound to.
func (a *attempt) begins(list []jobs.Capsule) *jobs.Capsule {
	var last, base *jobs.Capsule
	for i, c := range list {
		switch {
		case c.Epoch >= a.claim.Epoch():
		case a.bound() && c.Epoch == a.rec.Resume:
			base = &list[i]
		case c.Epoch > max(a.rec.Since, a.rec.Resume):
			last = &list[i]
		}
	}
	if last != nil && last.Why.Continues() {
		return last
	}
	return base
}

// bound reports whether the job goes on with a conversation or not at all.
func (a *attempt) bound() bool { return a.rec.Resume > 0 || a.job.Fork != "" }

// forks reports whether the attempt begins where the job was forked.
func (a *attempt) forks() bool {
	return a.memory.begun != nil && a.memory.begun.Epoch == 0
}

// unbound is the end of a job that was to go on with a conversation and cannot.
func (a *attempt) unbound(why string) error {
	if !a.bound() {
		return nil
	}
	return verdict.Ended(jobs.NotResumed, "the conversation cannot be continued: %s", why)
}

// resume puts the conversation into the agent's home, and tells the session
// how the attempt goes on.
func (a *attempt) resume(ctx context.Context, in confine.Jail, c *jobs.Capsule, why string) error {
	a.memory.home = in.Kept
	if c != nil && in.Kept == "" {
		c, why = nil, "without a jail an agent finds its conversation elsewhere"
	}
	if c != nil {
		content, err := a.cfg.Store.Get(ctx, c.Job, c.Epoch, c.Home.Name)
		if err != nil {
			return verdict.Failed(jobs.StoreFailed, "read the capsule", err)
		}
		err = errors.Join(a.memory.talk(c.Conversation).Unpack(content), content.Close())
		if err != nil {
			c, why = nil, "the capsule is broken: "+err.Error()
		}
	}
	if c == nil {
		if err := a.unbound(why); err != nil {
			return err
		}
		return a.anew(ctx, why)
	}
	a.bring(c)
	a.memory.begun, a.memory.heard, a.memory.turns = c, c.Heard, c.Turn
	a.talk.resume, a.talk.at = c.Conversation, position{turn: c.Turn, open: c.Open, heard: c.Heard}
	a.log.Info("resumed", "epoch", c.Epoch, "turn", c.Turn)
	d := event.SessionContinued{How: "resumed", Epoch: c.Epoch, Conversation: c.Conversation, Turn: c.Turn}
	if a.forks() {
		d.How, d.From = "forked", a.job.Fork
	}
	a.events.put(event.Make(d))
	return nil
}

// anew tells the session that the agent knows nothing of what was before, if
// there is anything to say.
func (a *attempt) anew(ctx context.Context, why string) error {
	a.bring(nil)
	a.memory.begun, a.talk.resume = nil, ""
	a.memory.heard, a.memory.turns = nil, 0
	if why == "" {
		return nil
	}
	s, err := a.salvageOf(ctx, a.rec, a.claim.Epoch())
	if err != nil {
		return err
	}
	d := event.SessionContinued{How: "anew", Why: a.clean(why)}
	if s != nil {
		d.Epoch = s.Epoch
	}
	a.log.Info("begins anew", "why", why)
	a.events.put(event.Make(d))
	return nil
}

// deaf reports whether an agent has refused to go on with its conversation: it
// ended before it had begun a turn.
func (a *attempt) deaf(err error) bool {
	end, ok := errors.AsType[*verdict.EndedError](err)
	return ok && end.Reason == jobs.AgentProtocol && a.memory.begun != nil && a.talk.round == 0 && a.talk.at.turn == a.memory.begun.Turn
}
