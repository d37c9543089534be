package operation

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// Operations on webhooks, by which the pool tells others what happens to its jobs.
var (
	WebhookAdd = define[WebhookRequest, Webhook](Row{
		Name: "webhook-add", Changes: true, what: "webhook", Sentence: "Send events of jobs to a URL from now on; a webhook of that name is an error.",
	})
	WebhookReplace = define[WebhookRequest, Webhook](Row{
		Name: "webhook-replace", Changes: true, what: "webhook", Sentence: "Add a webhook, or replace the one of that name. Its old secret signs, too, for another 24 hours.",
	})
	WebhookList = define[PageRequest, WebhookPage](Row{
		Name: "webhook-list", Roles: readers, Sentence: "List the webhooks by name, and how their deliveries go.",
	})
	WebhookRemove = define[Named, Named](Row{
		Name: "webhook-remove", Changes: true, Sentence: "Send nothing to a webhook any more, and forget its deliveries.",
	})
	WebhookTest = define[Named, Delivery](Row{
		Name: "webhook-test", Changes: true, Waits: true, Sentence: "Send a test event to a webhook now, once, and return what came of it.",
	})
	WebhookDeliveries = define[DeliveriesRequest, DeliveryPage](Row{
		Name: "webhook-deliveries", Roles: readers, Sentence: "List attempts to deliver events, the oldest first. Repeat the request with next as after.",
	})
	WebhookRedeliver = define[DeliveryRef, DeliveryRef](Row{
		Name: "webhook-redeliver", Changes: true, Sentence: "Deliver an event again, with the same id. One that waits for its next attempt is tried now.",
	})
)

// Bounds of webhooks.
const (
	maxURL     = 2048
	maxFilters = 32
)

// A WebhookRequest asks for events to be sent to a URL.
type WebhookRequest struct {
	Name   string            `json:"name" jsonschema:"A name for the webhook."`
	URL    string            `json:"url" jsonschema:"Where events are posted to: https, or http in networks that the settings allow."`
	Events []string          `json:"events,omitempty" jsonschema:"Which events: kinds as job.finished, or job.* for all, which is the default."`
	Queue  string            `json:"queue,omitempty" jsonschema:"Only of jobs of this queue."`
	Batch  string            `json:"batch,omitempty" jsonschema:"Only of jobs of this batch."`
	Labels map[string]string `json:"labels,omitempty" jsonschema:"Only of jobs with these labels."`
	Secret string            `json:"secret" jsonschema:"What deliveries are signed with: whsec_ and 24 to 64 random bytes in base64."`
}

// webhookEvents are the kinds of events that a webhook may ask for.
var webhookEvents = []string{
	"job.*", string(jobs.JobSubmitted), string(jobs.JobClaimed), string(jobs.JobRequeued), string(jobs.JobWaiting), string(jobs.JobFinished), string(jobs.JobReopened),
}

// WebhookEvents lists the kinds of events that a webhook may ask for.
func WebhookEvents() []string { return slices.Clone(webhookEvents) }

func (r WebhookRequest) check() error {
	if err := jobs.CheckToken("name", r.Name); err != nil {
		return err
	}
	if reason := badURL(r.URL); reason != "" {
		return invalid("url", reason)
	}
	for _, kind := range r.Events {
		if !slices.Contains(webhookEvents, kind) {
			return invalid("events", fmt.Sprintf("%q is not sent: use %s", kind, strings.Join(webhookEvents, ", ")))
		}
	}
	if len(r.Events) > maxFilters || len(r.Labels) > maxFilters {
		return invalid("events", fmt.Sprintf("there are more than %d events or labels", maxFilters))
	}
	for field, name := range map[string]string{"queue": r.Queue, "batch": r.Batch} {
		if name == "" {
			continue
		}
		if err := jobs.CheckToken(field, name); err != nil {
			return err
		}
	}
	for name, value := range r.Labels {
		if name == "" || len(name)+len(value) > 512 {
			return invalid("labels", "a label needs a name, and is of at most 512 bytes")
		}
	}
	if !isSigningSecret(r.Secret) {
		return invalid("secret", "is not whsec_ and 24 to 64 bytes in base64: make one with head -c 32 /dev/urandom | base64")
	}
	return nil
}

// badURL says why nothing can be posted to an address; empty if it can be.
func badURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return "is missing"
	case len(text) > maxURL:
		return fmt.Sprintf("is longer than %d bytes", maxURL)
	case err != nil || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "is not a URL"
	case u.Scheme != "https" && u.Scheme != "http":
		return "does not begin with https://"
	case u.Hostname() == "" || u.Opaque != "":
		return "has no host"
	case u.User != nil:
		return "has a user or a password: a receiver checks the signature instead"
	case u.Fragment != "":
		return "has a fragment, which is never sent: leave out # and what follows"
	}
	return ""
}

// SecretPrefix begins the secret of a webhook, as Standard Webhooks has it.
const SecretPrefix = "whsec_"

func isSigningSecret(text string) bool {
	encoded, ok := strings.CutPrefix(text, SecretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	return ok && err == nil && len(key) >= 24 && len(key) <= 64
}

// A Webhook is what the pool tells of a webhook: all but its secret.
type Webhook struct {
	Name    string            `json:"name" jsonschema:"Its name."`
	URL     string            `json:"url" jsonschema:"Where events are posted to."`
	Events  []string          `json:"events" jsonschema:"Which events."`
	Queue   string            `json:"queue,omitempty" jsonschema:"Only of jobs of this queue."`
	Batch   string            `json:"batch,omitempty" jsonschema:"Only of jobs of this batch."`
	Labels  map[string]string `json:"labels,omitempty" jsonschema:"Only of jobs with these labels."`
	Created time.Time         `json:"created" jsonschema:"When it was added."`
	Changed time.Time         `json:"changed" jsonschema:"When it was last replaced."`
	By      string            `json:"by" jsonschema:"Who has done that."`
	// What the leader has stored of its deliveries.
	Waiting  int              `json:"waiting" jsonschema:"How many events wait for another attempt, or behind one that does."`
	Oldest   *time.Time       `json:"oldest,omitempty" jsonschema:"When the oldest of them happened."`
	Failing  *time.Time       `json:"failing,omitempty" jsonschema:"Since when no delivery has succeeded, if the last one failed."`
	Error    string           `json:"error,omitempty" jsonschema:"Why that one failed."`
	Disabled *WebhookDisabled `json:"disabled,omitempty" jsonschema:"There if nothing is sent any more, until the webhook is replaced."`
	Rotating *time.Time       `json:"rotating,omitempty" jsonschema:"Until when the secret from before signs, too."`
}

// WebhookDisabled says why a webhook gets nothing any more.
type WebhookDisabled struct {
	At     time.Time `json:"at" jsonschema:"When it was disabled."`
	Reason string    `json:"reason" jsonschema:"Why."`
}

// A WebhookPage is a page of webhooks.
type WebhookPage struct {
	Webhooks []Webhook `json:"webhooks" jsonschema:"The webhooks."`
	Next     string    `json:"next,omitempty" jsonschema:"There if the list goes on: what the next request has as after."`
}

// How an attempt to deliver an event ended.
const (
	DeliveryDone    = "delivered"
	DeliveryRetried = "retrying" // it failed, and another one follows
	DeliveryGivenUp = "given_up" // it failed, and was the last one
	DeliveryFailed  = "failed"   // of a test, which is sent once
)

// A Delivery is one attempt to deliver an event.
type Delivery struct {
	ID       string        `json:"id" jsonschema:"The delivery's id, the same for all attempts."`
	Webhook  string        `json:"webhook" jsonschema:"The webhook's name."`
	Event    string        `json:"event" jsonschema:"The event's id, which receivers know it by: header webhook-id."`
	Type     string        `json:"type" jsonschema:"The event's kind."`
	Job      string        `json:"job,omitempty" jsonschema:"The job that it is about."`
	Attempt  int           `json:"attempt" jsonschema:"Which attempt it was, from 1."`
	At       time.Time     `json:"at" jsonschema:"When it was made."`
	Took     jobs.Duration `json:"took" jsonschema:"How long it took."`
	State    string        `json:"state" jsonschema:"delivered, retrying, given_up or, of a test, failed."`
	Status   int           `json:"status,omitempty" jsonschema:"The HTTP status of the answer, if there was one."`
	Error    string        `json:"error,omitempty" jsonschema:"What went wrong."`
	Response string        `json:"response,omitempty" jsonschema:"The beginning of the answer, at most 1 KiB."`
	Next     *time.Time    `json:"next,omitempty" jsonschema:"When the next attempt is due."`
}

// A DeliveriesRequest selects attempts. Empty fields select all.
type DeliveriesRequest struct {
	Name   string     `json:"name,omitempty" jsonschema:"Of this webhook."`
	Since  *time.Time `json:"since,omitempty" jsonschema:"Since this time."`
	Failed bool       `json:"failed,omitempty" jsonschema:"Only those that failed."`
	After  uint64     `json:"after,omitempty" jsonschema:"The next of the page before."`
	Limit  int        `json:"limit,omitempty" jsonschema:"How many are wanted, at most 1000, which is the default."`
}

func (r DeliveriesRequest) check() error {
	if r.Name != "" {
		if err := jobs.CheckToken("name", r.Name); err != nil {
			return err
		}
	}
	return checkLimit(r.Limit)
}

// A DeliveryPage is a page of attempts.
type DeliveryPage struct {
	Deliveries []Delivery `json:"deliveries" jsonschema:"The attempts."`
	Next       uint64     `json:"next" jsonschema:"What the next request has as after."`
	More       bool       `json:"more" jsonschema:"More of the list is there already."`
}

// A DeliveryRef names a delivery.
type DeliveryRef struct {
	ID string `json:"id" jsonschema:"The delivery's id, as the list of deliveries has it."`
}

func (r DeliveryRef) check() error {
	if r.ID == "" {
		return invalid("id", "is missing: the list of deliveries has it")
	}
	return nil
}
