package doctorcmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/layout"
	"github.com/penstock-run/penstock/jobs/ratelimit"
	"github.com/penstock-run/penstock/jobs/visible"
	"github.com/penstock-run/penstock/jobs/why"
)

const (
	// skewed is by how much clocks may differ before times of one job contradict each other.
	skewed = 2 * time.Second
	// stale is the age of a backup that is worth a word.
	stale = 7 * 24 * time.Hour
	// nearlyFull is the share of the store from which on it is worth a word.
	nearlyFull = 0.8
)

// A poolDoctor examines the pool of --server, or the one that runs on the data directory.
type poolDoctor struct {
	shell  cli.Shell
	wanted layout.Config
}

// checkPool examines a pool that runs. Where none runs, nothing of it can be said.
func checkPool(ctx context.Context, shell cli.Shell, cmd *cobra.Command) []Finding {
	if pool.OverHTTP(shell.Config) {
		return nil // which tells of jobs, and not how they are kept
	}
	if shell.Config.Server == "" {
		if _, err := natsd.Find(pool.StoreDir(shell)); err != nil {
			return nil
		}
	}
	d := poolDoctor{shell, pool.WantedLayout(shell, cmd)}
	found, ok := d.checkBroker(ctx)
	if !ok {
		return found // a command that opens the pool would make what is missing
	}
	p, err := pool.Open(ctx, shell, "doctor", pool.Hooks{})
	if err != nil {
		f := Finding{Check: "records", Status: "note", Detail: "they cannot be read: " + err.Error(), Fix: "check that the broker runs, and the credential"}
		return append(found, f)
	}
	for _, check := range []func(context.Context, *pool.Pool) (Finding, error){
		checkRecords, d.checkWorkers, checkModelKeys, d.checkTokens, checkStore, d.checkBackup, checkDead, checkWebhooks,
	} {
		f, err := check(ctx, p)
		switch {
		case errors.Is(err, jobs.ErrForbidden): // this credential may not ask for it
		case err != nil:
			found = append(found, Finding{Check: f.Check, Status: "note", Detail: "it cannot be read: " + err.Error(), Fix: "check that the broker runs, and the credential"})
		default:
			found = append(found, f)
		}
	}
	if err := p.Close(); err != nil {
		found = append(found, Finding{Check: "connection", Status: "note", Detail: err.Error()})
	}
	return found
}

// checkBroker reaches the broker, makes nothing on it, and reports whether the streams are
// there that the other checks read.
func (d poolDoctor) checkBroker(ctx context.Context) (found []Finding, ok bool) {
	f := Finding{Check: "broker", Status: "ok"}
	p, err := pool.Reach(d.shell, "doctor")
	if err != nil {
		f.Status, f.Detail, f.Price = "fail", err.Error(), "no command and no worker can use the pool"
		f.Fix = "start it with penstock serve, or check --server, --creds and the network"
		return []Finding{f}, false
	}
	rtt, err := p.Conn.RTT()
	f.Detail = fmt.Sprintf("%s, NATS %s, answers in %v", p.Broker(), p.Conn.ConnectedServerVersion(), rtt.Round(10*time.Microsecond))
	if err != nil {
		f.Status, f.Detail, f.Fix = "fail", err.Error(), "check the broker and the network"
	}
	found = append(found, f)
	streams, ok := d.checkLayout(ctx, p)
	if streams.Check != "" {
		found = append(found, streams)
	}
	if ok {
		found = append(found, checkBrokerClock(ctx, p)...)
	}
	found = append(found, d.checkCredentials(p)...)
	if err := p.Close(); err != nil {
		found = append(found, Finding{Check: "connection", Status: "note", Detail: err.Error()})
	}
	return found, ok
}

// checkLayout compares the streams with those that this release wants, and reports whether
// all of them are there. A credential that may not ask has no finding.
func (d poolDoctor) checkLayout(ctx context.Context, p *pool.Pool) (f Finding, complete bool) {
	f = Finding{Check: "streams", Status: "ok", Detail: "they are as this release wants them"}
	differ, err := layout.Diff(ctx, p.Conn, d.wanted)
	switch {
	case errors.Is(err, jobs.ErrForbidden):
		return Finding{}, true
	case err != nil:
		f.Status, f.Detail, f.Fix = "fail", err.Error(), "check that the broker has JetStream, and that most of its servers run"
		return f, false
	case len(differ) == 0:
		return f, true
	}
	names := map[string]bool{}
	missing := 0
	for _, x := range differ {
		what := x.Name
		if x.Field != "" {
			what = fmt.Sprintf("%s (%s is %s, wanted %s)", x.Name, x.Field, x.Is, x.Wanted)
		}
		names[what] = true
		if x.Way == layout.Create {
			missing++
		}
	}
	f.Status = "weak"
	f.Detail = fmt.Sprintf("%d differ: %s", len(names), strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	f.Price, f.Fix = "limits and retention are not those of the settings", "penstock doctor --fix, or penstock nats apply"
	if missing > 0 {
		f.Status, f.Price = "fail", fmt.Sprintf("%d are missing, and what needs them does not work", missing)
	}
	return f, missing == 0
}

// checkBrokerClock compares this host's clock with the broker's.
func checkBrokerClock(ctx context.Context, p *pool.Pool) []Finding {
	f := Finding{Check: "broker clock", Status: "ok"}
	ahead, err := layout.Clock(ctx, p.Conn)
	if errors.Is(err, jobs.ErrForbidden) {
		return nil
	}
	if err != nil {
		f.Status, f.Detail = "note", err.Error()
		return []Finding{f}
	}
	f.Detail = "this host is " + apart(ahead)
	if ahead.Abs() > skewed {
		f.Status, f.Price = "weak", "times of one job contradict each other, and --run-at and schedules begin at other times than here"
		f.Fix = "synchronize the clocks of both hosts: timedatectl set-ntp true, or chrony"
	}
	return []Finding{f}
}

func apart(ahead time.Duration) string {
	word := "ahead of the broker"
	if ahead < 0 {
		word = "behind the broker"
	}
	return fmt.Sprintf("%v %s", ahead.Abs().Round(time.Millisecond), word)
}

// checkModelKeys looks for keys of model APIs that are refused, or held by a limit.
func checkModelKeys(ctx context.Context, p *pool.Pool) (Finding, error) {
	f := Finding{Check: "model keys", Status: "ok", Detail: "none is refused or held by a limit"}
	now := time.Now()
	list, err := ratelimit.Of(p.Queue.Workers()).List(ctx, now)
	if err != nil {
		return f, err
	}
	var refused, held []string
	for _, key := range list {
		if r := key.Refused; r != nil {
			refused = append(refused, fmt.Sprintf("%s since %s: %s", visible.Line(key.Key), r.Since.UTC().Format(time.RFC3339), visible.Line(r.Message)))
		}
		for model, until := range key.Holds {
			if until.After(now) {
				held = append(held, fmt.Sprintf("%s of %s until %s", visible.Line(model), visible.Line(key.Key), until.UTC().Format(time.RFC3339)))
			}
		}
	}
	slices.Sort(held)
	switch {
	case len(refused) > 0:
		f.Status, f.Detail = "weak", fmt.Sprintf("%d refused: %s", len(refused), strings.Join(refused, "; "))
		f.Price, f.Fix = "jobs that need the key wait", "give the workers a key that the provider accepts, or its account credit; one call tries every few minutes"
	case len(held) > 0:
		f.Status, f.Detail = "note", fmt.Sprintf("%d held by a limit: %s", len(held), strings.Join(held, "; "))
		f.Price, f.Fix = "jobs that need the model wait", "wait, or give the workers another key"
	}
	return f, nil
}

// checkWorkers looks for workers of several releases, and for clocks that are wrong.
func (d poolDoctor) checkWorkers(ctx context.Context, p *pool.Pool) (Finding, error) {
	f := Finding{Check: "workers", Status: "ok"}
	list, err := p.Queue.Workers().List(ctx)
	if err != nil {
		return f, err
	}
	versions, closed, wrong := map[string]int{}, 0, []string{}
	for _, w := range list {
		versions[d.version(w)]++
		if w.Closed != "" {
			closed++
		}
		if ahead := w.Clock.Sub(w.Seen); !w.Clock.IsZero() && ahead.Abs() > skewed {
			wrong = append(wrong, fmt.Sprintf("%s is %s", w.Name, apart(ahead)))
		}
	}
	var said []string
	for _, v := range slices.Sorted(maps.Keys(versions)) {
		said = append(said, fmt.Sprintf("%d of %s", versions[v], v))
	}
	f.Detail = fmt.Sprintf("%d alive: %s", len(list), strings.Join(said, ", "))
	switch {
	case len(list) == 0:
		f.Status, f.Detail, f.Price, f.Fix = "note", "none is alive", "jobs wait", "penstock worker, or penstock serve --slots N"
	case len(wrong) > 0:
		f.Status, f.Detail = "weak", f.Detail+"; clocks: "+strings.Join(wrong, ", ")
		f.Price, f.Fix = "times of events contradict each other", "synchronize the clocks of these hosts: timedatectl set-ntp true, or chrony"
	case len(versions) > 1 || versions[d.shell.Release] == 0:
		f.Status, f.Price = "note", "what a newer release can do is done by some workers only"
		f.Fix = fmt.Sprintf("this program is %s: install one release on all hosts", d.shell.Release)
	case closed > 0:
		f.Status, f.Detail, f.Fix = "note", fmt.Sprintf("%s; %d claim nothing", f.Detail, closed), "penstock worker ls says why"
	}
	return f, nil
}

func (poolDoctor) version(w why.Worker) string {
	if w.Version == "" {
		return "an earlier release"
	}
	return w.Version
}

// checkStore compares what the broker keeps with its limit.
func checkStore(ctx context.Context, p *pool.Pool) (Finding, error) {
	f := Finding{Check: "store", Status: "ok"}
	s, err := p.Queue.Stored(ctx)
	if err != nil {
		return f, err
	}
	f.Detail = fmt.Sprintf("%d MiB used", s.Bytes>>20)
	if s.Limit <= 0 {
		return f, nil
	}
	share := float64(s.Bytes) / float64(s.Limit)
	f.Detail = fmt.Sprintf("%d of %d MiB used (%.0f %%)", s.Bytes>>20, s.Limit>>20, 100*share)
	if share > nearlyFull {
		f.Status, f.Price = "weak", "a full store refuses jobs, and then events and results"
		f.Fix = "shorten retention with --keep-events and --keep-artifacts, or give the broker more room: retention.store_bytes"
	}
	if err := p.Queue.Room(ctx); errors.Is(err, jobs.ErrFull) {
		f.Status = "fail"
	}
	return f, nil
}

// checkBackup says how old the last backup is, as far as the audit log goes back.
func (d poolDoctor) checkBackup(ctx context.Context, p *pool.Pool) (Finding, error) {
	f := Finding{Check: "backup", Status: "ok"}
	b, err := p.Audit.Backups(ctx)
	if err != nil {
		return f, err
	}
	if b.Last.At.IsZero() {
		f.Status, f.Detail = "note", fmt.Sprintf("none within %v", d.shell.Config.Keep.Audit)
	} else {
		age := time.Since(b.Last.At)
		f.Detail = fmt.Sprintf("%s, %v old", b.Last.About, age.Round(time.Minute))
		if age > stale {
			f.Status = "note"
		}
	}
	if failed := b.Failed; failed.At.After(b.Last.At) {
		f.Status, f.Detail = "weak", fmt.Sprintf("%s; %s failed %v ago: %s", f.Detail, failed.About, time.Since(failed.At).Round(time.Minute), failed.Outcome)
	}
	if f.Status != "ok" {
		f.Price, f.Fix = "a broken disk of the broker loses jobs and results", "penstock backup DIR --every 24h --keep 14, and look at what it says"
	}
	return f, nil
}

func checkDead(ctx context.Context, p *pool.Pool) (Finding, error) {
	f := Finding{Check: "dead letters", Status: "ok", Detail: "none"}
	s, err := p.Queue.Stored(ctx)
	if err == nil && s.DeadLetters > 0 {
		f.Status, f.Detail = "note", fmt.Sprint(s.DeadLetters)
		f.Price, f.Fix = "jobs that failed for good wait for a decision", "penstock dead ls, then dead retry or dead drop"
	}
	return f, err
}

func checkWebhooks(ctx context.Context, p *pool.Pool) (Finding, error) {
	f := Finding{Check: "webhooks", Status: "ok", Detail: "none"}
	count, disabled := 0, []string{}
	for hook, err := range p.Client.Webhooks().List(ctx) {
		if err != nil {
			return f, err
		}
		if count++; hook.Disabled != nil {
			disabled = append(disabled, fmt.Sprintf("%s (%s)", hook.Name, hook.Disabled.Reason))
		}
	}
	if count > 0 {
		f.Detail = fmt.Sprintf("%d work", count)
	}
	if len(disabled) > 0 {
		f.Status, f.Detail = "weak", "disabled: "+strings.Join(disabled, ", ")
		f.Price, f.Fix = "their receivers hear of no job", "repair the receiver, then penstock webhook add NAME --url URL --replace"
	}
	return f, nil
}
