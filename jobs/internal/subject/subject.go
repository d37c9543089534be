// Package subject knows every stream, bucket and subject name of the wire, so
// that a name is spelled in one place only.
//
// The tokens of a name are validated before anything is published: a broker
// stores a literal "*" in a subject, and a later purge of that subject would
// hit every other one.
package subject

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// Streams, and what each keeps. A client only sees those that its role may read.
const (
	Intake     = "PS_INTAKE"     // jobs that clients published, until a dispatcher has taken them
	Events     = "PS_EVENTS"     // the events of every session
	Schedules  = "PS_SCHED"      // times at which jobs and cron schedules are due
	Dead       = "PS_DEAD"       // dead letters
	Advisories = "PS_ADVISORY"   // what the broker says of messages that it gave up
	Audit      = "PS_AUDIT"      // who asked for which change
	Deliveries = "PS_DELIVERIES" // attempts to deliver events to webhooks
	Queues     = "PS_Q_"         // of a lane: one message for each job that may start or runs; this begins the name
)

// Buckets, and what each keeps. A bucket is a stream whose name has a prefix.
const (
	Jobs      = "ps_jobs"      // the record of each job: state, lease, outcome
	Specs     = "ps_specs"     // the specification of each job
	Keys      = "ps_keys"      // which job has a key
	Workers   = "ps_workers"   // the workers that are there, and which files jobs change
	Settings  = "ps_config"    // pauses, caps, classes, and other settings of the pool
	Leader    = "ps_leader"    // the dispatcher that leads
	Permits   = "ps_permits"   // which jobs hold the permits of a cap
	Timetable = "ps_schedules" // cron schedules
	Artifacts = "ps_artifacts" // patches, logs and other files, in the object store
	Results   = "ps_results"   // results of jobs, and the lists of their artifacts
	Tokens    = "ps_tokens"    // hashes of the tokens for HTTP, and their last use
	Webhooks  = "ps_webhooks"  // webhooks, and how far each has come
)

// Marker is the stream on which is written what an installation was made with.
const Marker = "KV_" + Jobs

const (
	// RoleAPI begins the broker's own requests for a client whose role is not the
	// operator's.
	RoleAPI = "PSJS"
	// PurgedHeader is the header of the note that stands in the place of a record whose
	// job was purged.
	PurgedHeader = "Penstock-Purged"
)

// Consumer is the durable consumer of a queue stream, Due the one of the
// schedules that have come due, Taker the one of the intake and of the advisories.
const (
	Consumer = "w"
	Due      = "due"
	Taker    = "dispatcher"
)

// Lanes in the order in which they are served.
var Lanes = []string{"p0", "p1", "p2"}

// Names makes the subjects under one prefix.
type Names struct{ Prefix string }

// New returns the names under a prefix; empty means "penstock.v1".
func New(prefix string) (Names, error) {
	if prefix == "" {
		prefix = "penstock.v1"
	}
	for part := range strings.SplitSeq(prefix, ".") {
		if err := jobs.CheckToken("prefix", part); err != nil {
			return Names{}, err
		}
	}
	return Names{prefix}, nil
}

// Queue is the subject of a job's queue message.
func (n Names) Queue(class, lane, tenant, id string) string {
	return n.join("q", class, lane, tenant, id)
}

// QueueAll matches every message of a lane.
func (n Names) QueueAll(class, lane string) string { return n.join("q", class, lane, ">") }

// Wake is where the broker repeats the headers of what enters a lane.
func (n Names) Wake(class, lane string) string { return n.join("wake", class, lane, ">") }

// WakeClass matches the notifications of all lanes of a class.
func (n Names) WakeClass(class string) string { return n.join("wake", class, ">") }

// WakeAgain is the notification subject of one lane for a process that returns a job
// to it without a publish.
func (n Names) WakeAgain(class, lane string) string { return n.join("wake", class, lane, "again") }

// Changed is where the broker repeats the headers of every record's change:
// of the class, which may be a wildcard.
func (n Names) Changed(class string) string { return n.join("changed", class, "*") }

// ChangedJob is where the broker repeats the headers of one record's changes,
// whatever its class is.
func (n Names) ChangedJob(id string) string { return n.join("changed", "*", id) }

// ChangedAll matches every record's change.
func (n Names) ChangedAll() string { return n.join("changed", ">") }

// ParseQueue takes a queue message's subject apart.
func (n Names) ParseQueue(subject string) (class, lane, tenant, id string, err error) {
	return n.parse("q", subject)
}

// Sched is the subject of a job's schedule.
func (n Names) Sched(tenant, id string) string { return n.join("sched", tenant, id) }

// Timer is the subject of what wakes a cron schedule.
func (n Names) Timer(tenant, name string) string { return n.join("sched", tenant, "cron", name) }

// Fire is where a cron schedule's timer is sent when its time has come.
func (n Names) Fire(tenant, name string) string { return n.join("due", "cron", tenant, name) }

// ParseFire takes the subject of a schedule's firing apart, and reports whether
// it is one.
func (n Names) ParseFire(subject string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(subject, n.Prefix+".due.cron.")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 2 || jobs.CheckToken("name", parts[1]) != nil {
		return "", false // with three it is a job of the queue "cron"
	}
	return parts[1], true
}

// SchedAll matches every schedule.
func (n Names) SchedAll() string { return n.join("sched", ">") }

// Due is where a schedule is sent when its time has come.
func (n Names) Due(class, lane, tenant, id string) string {
	return n.join("due", class, lane, tenant, id)
}

// DueAll matches everything that has come due.
func (n Names) DueAll() string { return n.join("due", ">") }

// ParseDue takes a due message's subject apart.
func (n Names) ParseDue(subject string) (class, lane, tenant, id string, err error) {
	return n.parse("due", subject)
}

// Submit is where a submitter of the tenant publishes a job.
func (n Names) Submit(tenant string) string { return n.join("submit", tenant) }

// API is where requests of one verb are answered.
func (n Names) API(verb string) string { return n.join("api", verb) }

// SubmitAll matches the submissions of every tenant.
func (n Names) SubmitAll() string { return n.join("submit", "*") }

// SessionEvents is the subject of a session's events.
func (n Names) SessionEvents(tenant, session string) string {
	return n.join("sessions", tenant, session, "events")
}

// EventsAll matches the events of every session.
func (n Names) EventsAll() string { return n.join("sessions", "*", "*", "events") }

// Stored is where the broker repeats the headers of what it has stored of a
// session's events.
func (n Names) Stored(tenant, session string) string {
	return n.join("stored", tenant, session, "events")
}

// SessionsAll matches everything of every session: the broker repeats by whole tails of a
// subject only.
func (n Names) SessionsAll() string { return n.join("sessions", ">") }

// StoredAll is where the broker repeats the headers of what it has stored of sessions.
func (n Names) StoredAll() string { return n.join("stored", ">") }

// Control is the subject of a session's control messages.
func (n Names) Control(tenant, session string) string {
	return n.join("sessions", tenant, session, "control")
}

// Terminals is where requests about a session's terminals are answered.
func (n Names) Terminals(tenant, session string) string {
	return n.join("sessions", tenant, session, "terminals")
}

// DeadLetter is the subject of a job's dead letter.
func (n Names) DeadLetter(class, tenant, id string) string { return n.join("dead", class, tenant, id) }

// DeadAll matches every dead letter.
func (n Names) DeadAll() string { return n.join("dead", ">") }

// Leader is where one of those that may lead says that it is there.
func (n Names) Leader(instance string) string { return n.join("leader", instance) }

// Question is where the leader answers other processes of the pool what it knows of the
// jobs; kind is what they ask.
func (n Names) Question(kind string) string { return n.join("question", kind) }

// TokensAll is where the broker repeats the headers of what it has stored of tokens:
// the wildcard that subscribers use.
func (n Names) TokensAll() string { return n.join("tokens", ">") }

// WebhooksAll is where the broker repeats the headers of what clients have asked for of
// webhooks: the wildcard that subscribers use.
func (n Names) WebhooksAll() string { return n.join("webhooks", ">") }

// Delivered is the subject of a webhook's attempts to deliver events; its id may be a
// wildcard.
func (n Names) Delivered(id string) string { return n.join("delivered", id) }

// Audited is the subject of an operation's entries in the audit log; the operation may
// be a wildcard.
func (n Names) Audited(operation string) string { return n.join("audit", operation) }

// Drain is where a worker is told that something was asked of it. The part stands for
// the worker and may be a wildcard.
func (n Names) Drain(worker string) string { return n.join("drain", worker) }

// SplitClass takes a class apart: the queue, and the labels that a worker must
// have.
func SplitClass(class string) (queue string, needs []string) {
	parts := strings.Split(class, "--")
	return parts[0], parts[1:]
}

// Class is where a class that has needs is registered.
func Class(class string) string { return Key(Settings, "class."+class) }

// LeaderKey is the key of the current leader, and CapsKey that of the caps.
// Permit is the key of a cap's permit holders, by the hash of the cap's key.
var (
	LeaderKey = Key(Leader, "dispatcher")
	CapsKey   = Key(Settings, "caps")
)

// Permit says: see LeaderKey.
func Permit(hash string) string { return Key(Permits, hash) }

// Touched is where a worker says which files a job has changed; the job may be a wildcard.
func Touched(job string) string { return Key(Workers, "touched."+job) }

// Overlap is where it is kept that a job changes files that another one changes; each may be a
// wildcard.
func Overlap(job, other string) string { return Key(Workers, "overlap."+job+"."+other) }

// Timetabled is where a schedule is kept; its name may be a wildcard.
func Timetabled(tenant, name string) string { return Key(Timetable, tenant+"."+name) }

// QueueStream is the stream of one lane of a class.
func QueueStream(class, lane string) string {
	return Queues + strings.ToUpper(class) + "_" + strings.ToUpper(lane)
}

// ParseQueueStream takes the name of a lane's stream apart. A stream of
// something else is not ok.
func ParseQueueStream(stream string) (class, lane string, ok bool) {
	rest, ok := strings.CutPrefix(stream, "PS_Q_")
	at := strings.LastIndexByte(rest, '_')
	if !ok || at < 0 {
		return "", "", false
	}
	class, lane = strings.ToLower(rest[:at]), strings.ToLower(rest[at+1:])
	return class, lane, slices.Contains(Lanes, lane) && QueueStream(class, lane) == stream && jobs.CheckToken("queue", class) == nil
}

// Token is where a token is kept, and TokenUse where its last use is; the name may be
// a wildcard.
func Token(name string) string { return Key(Tokens, "token."+name) }

// TokenUse: see Token.
func TokenUse(name string) string { return Key(Tokens, "used."+name) }

// Webhook is where a webhook is kept, WebhookAgain where it is asked to deliver an event
// again, WebhookState how far it has come, and WebhookLine the events of a job that it has
// not delivered. What clients write is under WebhookAsked. Each part may be a wildcard.
func Webhook(name string) string { return Key(Webhooks, "asked.hook."+name) }

// WebhookAgain says: see Webhook.
func WebhookAgain(id, seq string) string { return Key(Webhooks, "asked.again."+id+"."+seq) }

// WebhookState says: see Webhook.
func WebhookState(id string) string { return Key(Webhooks, "state."+id) }

// WebhookLine says: see Webhook.
func WebhookLine(id, line string) string { return Key(Webhooks, "line."+id+"."+line) }

// WebhookAsked matches what clients have asked for of webhooks.
var WebhookAsked = Key(Webhooks, "asked.>")

// KVStream is the stream that holds a bucket.
func KVStream(bucket string) string { return "KV_" + bucket }

// Key is the subject of a bucket's key; the key may have wildcards.
func Key(bucket, key string) string { return "$KV." + bucket + "." + key }

func (n Names) join(parts ...string) string { return n.Prefix + "." + strings.Join(parts, ".") }

func (n Names) parse(kind, subject string) (class, lane, tenant, id string, err error) {
	rest, ok := strings.CutPrefix(subject, n.Prefix+"."+kind+".")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 4 {
		return "", "", "", "", fmt.Errorf("subject %q is not that of a job", subject)
	}
	for _, part := range parts {
		if err := jobs.CheckToken("subject", part); err != nil {
			return "", "", "", "", err
		}
	}
	return parts[0], parts[1], parts[2], parts[3], nil
}
