package queue_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

func modelScenarios() []scenario {
	retried := jobs.AgentCrashed.Ended("it crashed")
	return []scenario{
		{name: "success", mortal: []string{"submitter", "worker 1"}},
		{name: "nobody repairs", alone: true, mortal: []string{"worker 1"}},
		{name: "cancelled", cancel: true, mortal: []string{"worker 1", "canceller"}},
		{name: "handed on", first: jobs.WorkerDrained.Ended("a shutdown"), mortal: []string{"worker 1"}},
		{name: "tried again later", first: retried, mortal: []string{"worker 1", "due 1"}},
		{name: "parked", parks: true, mortal: []string{"worker 1", "answerer"}},
		{name: "cancelled while parked", parks: true, cancel: true, mortal: []string{"worker 1"}},
		{name: "cancelled between attempts", first: retried, cancel: true, mortal: []string{"worker 1"}},
	}
}

// The queue itself, not a description of it, is taken along every schedule
// that differs from the simplest one in one place: another process goes first,
// an answer is lost, a process is killed before or after a step, time passes,
// the broker forgets which claimer has the message. Then along some that differ
// anywhere. PENSTOCK_TEST_DEPTH says in how many places, and takes a hundred
// times as many at random.
func TestEverySchedule(t *testing.T) {
	t.Parallel()
	depth, seed, random := 1, rand.Uint64(), 20
	if asked, err := strconv.Atoi(os.Getenv("PENSTOCK_TEST_DEPTH")); err == nil {
		depth, random = asked, 5000
	}
	for _, s := range modelScenarios() {
		t.Run(s.name, func(t *testing.T) {
			s.budget = depth
			x := explorer{t: t, s: s, seen: map[uint64]int{}}
			wrong, trace := x.all()
			if wrong == "" {
				wrong, trace = x.random(seed, random)
			}
			if wrong != "" {
				t.Errorf("%s (seed %d)\n%s", wrong, seed, strings.Join(trace, "\n"))
			}
			if x.strayed > 1+x.runs/1000 {
				t.Errorf("%d of %d runs could not be repeated", x.strayed, x.runs)
			}
			t.Logf("%d runs, %d states, %d strayed", x.runs, len(x.seen), x.strayed)
		})
	}
}

// The exploration finds what it is there for: each rule that is taken out is
// missed.
func TestEveryRuleIsNeeded(t *testing.T) {
	t.Parallel()
	any := scenario{kinds: []string{}}
	late, lost := scenario{kinds: []string{"wait"}}, scenario{kinds: []string{"lose"}}
	slow := scenario{kinds: []string{"wait"}, work: 3 * modelLease}
	again := scenario{kinds: []string{"forget"}, work: modelLease + 530*time.Millisecond}
	alone := scenario{kinds: []string{"die"}, alone: true, mortal: []string{"submitter"}}
	for _, c := range []struct {
		rule   string
		breaks mutation
		in     scenario
		want   string
	}{
		{"a write names the revision that it replaces", noCompare, late, "changed a record that was final"},
		{"the record says how it ended before the message goes", ackFirst, any, "acknowledged the message of a job"},
		{"nothing is said about a message when the write failed", ackAnyway, late, "acknowledged the message of a job"},
		{"nobody takes a job whose heartbeat is fresh", clockAhead, again, "two attempts are alive"},
		{"a heartbeat is a write", silentBeats, again, "two attempts are alive"},
		{"a worker that cannot renew in time stops", ignoredLoss, slow, "two attempts are alive"},
		{"a write without an answer is looked for", noMark, lost, "its verdict stands"},
		{"what is stranded is offered again", asItIs, alone, "has not ended"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			whole := c.in
			x := explorer{t: t}
			var wrong string
			var trace []string
			for whole.breaks, whole.budget = c.breaks, 0; wrong == "" && whole.budget <= 2; whole.budget++ {
				x.s, x.seen = whole, map[uint64]int{}
				wrong, trace = x.all()
			}
			if wrong == "" || !strings.Contains(wrong, c.want) {
				t.Errorf("got %q, want something with %q", wrong, c.want)
			}
			t.Logf("%s, after %d runs:\n%s", wrong, x.runs, strings.Join(trace, "\n"))
		})
	}
}

// The model's broker and the real one answer every request the same.
func TestModelBrokerAnswersAsTheBroker(t *testing.T) {
	t.Parallel()
	server := jobstest.Start(t)
	q := open(t, server, queue.Config{Lease: time.Hour})
	jobstest.Submit(t, q, jobstest.Job()) // makes the lane
	settle(t, jobstest.Claim(t, q, "w"), success)
	b := newModelBroker(time.Hour)
	b.free = true
	var wg sync.WaitGroup
	link, dial := b.link("client", &wg)
	nc, err := nats.Connect("nats://127.0.0.1:4222", dial, nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); _ = link.conn.Close(); wg.Wait() })
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	model, real := &probe{nc: nc, rev: map[string]uint64{}}, &probe{nc: server.Connect(), rev: map[string]uint64{}}
	var did []string
	for range 400 {
		op := probeOp{verb: probeVerbs[r.IntN(len(probeVerbs))], id: "job-" + strconv.Itoa(r.IntN(3)), n: r.IntN(4)}
		want := model.do(t, op, "")
		got := real.do(t, op, want)
		if did = append(did, fmt.Sprintf("%s %s %d: %s", op.verb, op.id, op.n, want)); got != want {
			t.Fatalf("seed %d: the broker says %q, the model the last of these:\n%s", seed, got, strings.Join(did, "\n"))
		}
	}
}

var probeVerbs = []string{"put", "put", "stale put", "get", "offer", "offer", "next", "next", "+ACK", "-NAK", "+WPI", "stale +ACK", "stale -NAK", "purge", "subjects"}

type probeOp struct {
	verb, id string
	n        int
}

// A probe sends a broker one request after the other, and describes the answers in
// words that two brokers can share.
type probe struct {
	nc   *nats.Conn
	rev  map[string]uint64
	acks []string // of what was delivered, oldest first
}

func (p *probe) ask(tb testing.TB, msg *nats.Msg) (answer struct {
	Seq   uint64
	Error *struct {
		ErrCode int `json:"err_code"`
	}
	Message struct {
		Seq  uint64
		Data []byte
	}
	Purged int
	State  struct{ Subjects map[string]int }
}) {
	tb.Helper()
	reply, err := p.nc.RequestMsgWithContext(jobstest.Context(tb), msg)
	if err != nil {
		tb.Fatalf("%s: %v", msg.Subject, err)
	}
	if len(reply.Data) > 0 {
		if err := json.Unmarshal(reply.Data, &answer); err != nil {
			tb.Fatalf("%s: %s: %v", msg.Subject, reply.Data, err)
		}
	}
	return answer
}

// do asks for one thing. A real broker is asked for a message until it gives
// what is expected, because it says that it has stored one before it gives it.
func (p *probe) do(tb testing.TB, op probeOp, expected string) string {
	tb.Helper()
	names, _ := subject.New("")
	key, place := subject.Key(subject.Jobs, "default."+op.id), names.Queue("default", "p1", "default", "job")
	lane := subject.QueueStream("default", "p1")
	switch op.verb {
	case "put", "stale put":
		msg := &nats.Msg{Subject: key, Data: []byte(strconv.Itoa(op.n)), Header: nats.Header{}}
		expect := p.rev[key]
		if op.verb != "put" {
			expect += uint64(op.n) // where it is none, it is not stale
		}
		msg.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(expect, 10))
		answer := p.ask(tb, msg)
		if answer.Error != nil {
			return fmt.Sprint("error ", answer.Error.ErrCode)
		}
		p.rev[key] = answer.Seq
		return "stored"
	case "get":
		body, _ := json.Marshal(map[string]string{"last_by_subj": subject.Key(subject.Jobs, "*."+op.id)})
		answer := p.ask(tb, &nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + subject.KVStream(subject.Jobs), Data: body})
		if answer.Error != nil {
			return fmt.Sprint("error ", answer.Error.ErrCode)
		}
		return fmt.Sprint(string(answer.Message.Data), answer.Message.Seq == p.rev[key])
	case "offer":
		if answer := p.ask(tb, nats.NewMsg(place)); answer.Error != nil {
			return fmt.Sprint("error ", answer.Error.ErrCode)
		}
		return "stored"
	case "purge":
		body, _ := json.Marshal(map[string]string{"filter": place})
		return fmt.Sprint("purged ", p.ask(tb, &nats.Msg{Subject: "$JS.API.STREAM.PURGE." + lane, Data: body}).Purged)
	case "subjects":
		var all []string
		for s := range p.ask(tb, &nats.Msg{Subject: "$JS.API.STREAM.INFO." + lane, Data: []byte(`{"subjects_filter":">"}`)}).State.Subjects {
			all = append(all, s)
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	case "next":
		return p.next(tb, lane, expected)
	}
	return p.say(tb, op)
}

// say says something about the last delivery, or about an old one.
func (p *probe) say(tb testing.TB, op probeOp) string {
	i, verb := len(p.acks)-1, op.verb
	if rest, stale := strings.CutPrefix(verb, "stale "); stale {
		i, verb = i-1-op.n, rest
	}
	if i < 0 {
		return "nothing to say"
	}
	p.ask(tb, &nats.Msg{Subject: p.acks[i], Data: []byte(verb)})
	return "said"
}

func (p *probe) next(tb testing.TB, lane, expected string) string {
	tb.Helper()
	for try := 0; ; try++ {
		msg, err := p.nc.RequestMsgWithContext(jobstest.Context(tb), &nats.Msg{
			Subject: "$JS.API.CONSUMER.MSG.NEXT." + lane + "." + subject.Consumer, Data: []byte(`{"batch":1,"no_wait":true}`),
		})
		if err != nil {
			tb.Fatal(err)
		}
		if status := msg.Header.Get("Status"); status != "" {
			if expected == "" || status == expected || try == 100 {
				return status
			}
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.acks = append(p.acks, msg.Reply)
		return msg.Subject
	}
}
