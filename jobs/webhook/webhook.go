// Package webhook keeps the webhooks of a pool: where events of jobs are sent, how far
// each webhook has come in the log of events, what it could not deliver yet, and what came
// of each attempt.
//
//	Add ═══ bucket ═══▶ Hooks ─▶ (the leader) ─▶ Heads ─▶ Event ─▶ attempt
//	                                  ▲                              │
//	                                  ├── state: read up to here ────┤
//	                                  ├── line: events of one job ───┤ after a failure
//	                                  └── record of attempts ────────┘
//
// What the leader promises stands on one rule: each event up to the position of a
// webhook's state has been delivered or given up, or is in a line. So a leader that begins
// with the state and the lines misses none, however the one before it has ended. Every
// write of a line names the revision that it replaces: one that leads no more cannot
// remove what another one has added.
//
// The bucket has the secrets, since a signature needs them. It is the operator's, like
// the bucket of tokens, and nothing else repeats them: a [Secret] prints as its prefix.
package webhook

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Bounds of a pool.
const (
	// Most is how many webhooks a pool has at most: each reads the log of events.
	Most = 50
	// attemptsKept is how many attempts are kept of a webhook, and attemptsFor for how long.
	attemptsKept = 10_000
	attemptsFor  = 7 * 24 * time.Hour
	// rotation is how long the secret from before signs, too.
	rotation = 24 * time.Hour
)

// A Secret is what deliveries are signed with. It prints as its prefix alone.
type Secret string

// String keeps the secret out of texts.
func (s Secret) String() string { return operation.SecretPrefix + "…" }

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// LogValue keeps the secret out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// A Hook is a webhook as the bucket has it.
type Hook struct {
	// ID names what the leader keeps of the webhook. It changes where that is to begin
	// anew.
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	URL      string            `json:"url"`
	Events   []string          `json:"events"`
	Queue    string            `json:"queue,omitempty"`
	Batch    string            `json:"batch,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Secret   Secret            `json:"secret"`
	Previous *Previous         `json:"previous,omitempty"`
	From     uint64            `json:"from"` // the last event before the webhook
	Created  time.Time         `json:"created"`
	Changed  time.Time         `json:"changed"`
	By       string            `json:"by"`

	rev uint64
}

// Previous is a secret that was replaced, and until when it signs, too.
type Previous struct {
	Secret Secret    `json:"secret"`
	Until  time.Time `json:"until"`
}

// Secrets are those that sign at a time, the current one first.
func (h Hook) Secrets(now time.Time) []Secret {
	all := []Secret{h.Secret}
	if h.Previous != nil && now.Before(h.Previous.Until) {
		all = append(all, h.Previous.Secret)
	}
	return all
}

// Selects reports whether the webhook gets events of a kind.
func (h Hook) Selects(kind jobs.Kind) bool {
	return slices.ContainsFunc(h.Events, func(want string) bool {
		prefix, all := strings.CutSuffix(want, "*")
		return want == string(kind) || all && strings.HasPrefix(string(kind), prefix)
	})
}

// Filters reports whether it depends on the job if an event is sent.
func (h Hook) Filters() bool { return h.Queue != "" || h.Batch != "" || len(h.Labels) > 0 }

// Wants reports whether the webhook gets events of a job.
func (h Hook) Wants(rec jobs.Record) bool {
	if h.Queue != "" && rec.Queue != h.Queue || h.Batch != "" && rec.Batch != h.Batch {
		return false
	}
	for name, value := range h.Labels {
		if has, ok := rec.Labels[name]; !ok || has != value {
			return false
		}
	}
	return true
}

// Same reports whether two are the same version of one webhook.
func (h Hook) Same(other Hook) bool { return h.ID == other.ID && h.rev == other.rev }

// public is what clients are told.
func (h Hook) public(s State, now time.Time) operation.Webhook {
	w := operation.Webhook{
		Name: h.Name, URL: h.URL, Events: slices.Clone(h.Events), Queue: h.Queue, Batch: h.Batch, Labels: maps.Clone(h.Labels),
		Created: h.Created, Changed: h.Changed, By: h.By,
		Waiting: s.Waiting, Oldest: s.Oldest, Failing: s.Failing, Error: s.Error, Disabled: s.Disabled,
	}
	if h.Previous != nil && now.Before(h.Previous.Until) {
		w.Rotating = &h.Previous.Until
	}
	return w
}

// A State is how far a webhook has come, and how it goes.
type State struct {
	// Read is the position up to which each event is delivered, given up or in a line.
	Read     uint64                     `json:"read"`
	Waiting  int                        `json:"waiting,omitempty"`
	Oldest   *time.Time                 `json:"oldest,omitempty"`
	Failing  *time.Time                 `json:"failing,omitempty"`
	Error    string                     `json:"error,omitempty"`
	Disabled *operation.WebhookDisabled `json:"disabled,omitempty"`

	Rev uint64 `json:"-"`
}

// A Place is where an event is in the log, and when it happened.
type Place struct {
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at"`
}

// A Line is the events of one job that wait: for the next attempt of the first, or behind
// it. A redelivery is a line of its own.
type Line struct {
	Name     string    `json:"-"` // the job's id, or that of a redelivery
	Events   []Place   `json:"events"`
	Attempts int       `json:"attempts"` // of the first event
	Next     time.Time `json:"next"`

	Rev uint64 `json:"-"` // that the bucket has of it; 0: none
}

// merge adds what another version of the line has.
func (l Line) merge(other Line) Line {
	all := slices.Clone(l.Events)
	for _, e := range other.Events {
		if !slices.ContainsFunc(all, func(has Place) bool { return has.Seq == e.Seq }) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Place) int { return int(int64(a.Seq) - int64(b.Seq)) })
	l.Events, l.Rev = all, other.Rev
	return l
}

// redelivery begins the names of lines that were asked for.
const redelivery = "again-"

// Redelivery is the name of the line of an event that is delivered again.
func Redelivery(seq uint64) string { return redelivery + strconv.FormatUint(seq, 10) }

// Asked reports whether the line is of an event that is delivered again.
func (l Line) Asked() bool { return strings.HasPrefix(l.Name, redelivery) }

// DeliveryID names the delivery of an event to a webhook.
func DeliveryID(name string, seq uint64) string { return fmt.Sprintf("%s-%d", name, seq) }

// parseDelivery takes the id of a delivery apart.
func parseDelivery(id string) (name string, seq uint64, ok bool) {
	at := strings.LastIndexByte(id, '-')
	if at < 1 {
		return "", 0, false
	}
	seq, err := strconv.ParseUint(id[at+1:], 10, 64)
	return id[:at], seq, err == nil && jobs.CheckToken("id", id[:at]) == nil
}
