package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// A stockedPool is "penstock serve" as a process of its own, with jobs that the benchmark
// has written into its broker.
type stockedPool struct {
	testing.TB
	data, admin string
	args        []string
	process     *exec.Cmd
	log         *syncBuffer
	nc          *nats.Conn
	client      *client.Client
}

// newStockedPool starts an empty pool, which ends with the benchmark: with the broker in the
// same process, or in one of its own.
func newStockedPool(tb testing.TB, brokerApart bool) *stockedPool {
	tb.Helper()
	p := &stockedPool{TB: tb, data: filepath.Join(tb.TempDir(), "data"), admin: freeAddress(tb)}
	p.args = []string{"serve", "--admin", p.admin, "--pprof", "--drain", "0s", "--slots", "0"}
	options := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond)}
	url := ""
	if brokerApart {
		url = p.startBroker()
		p.args = append(p.args, "--server", url)
	} else {
		p.args = append(p.args, "--listen", freeAddress(tb))
	}
	p.serve()
	tb.Cleanup(func() { p.stop(syscall.SIGTERM) })
	if !brokerApart {
		at, err := natsd.Find(filepath.Join(p.data, "nats"))
		p.must(err)
		url, options = at.URL, append(options, at.Options()...)
	}
	var err error
	p.nc, err = nats.Connect(url, options...)
	p.must(err)
	tb.Cleanup(p.nc.Close)
	p.client, err = client.Open(tb.Context(), p.nc, client.Config{By: "bench"})
	p.must(err)
	return p
}

// startBroker starts a broker that syncs every write, and returns where it is.
func (p *stockedPool) startBroker() string {
	p.Helper()
	address, dir := freeAddress(p), p.TempDir()
	file := filepath.Join(dir, "broker.conf")
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q, sync_interval: always }\n", address, filepath.Join(dir, "store"))
	p.must(os.WriteFile(file, []byte(text), 0o600))
	broker, log := exec.Command("penstock", "nats", "server", file), &syncBuffer{}
	broker.Stdout, broker.Stderr = log, log
	p.must(broker.Start())
	p.Cleanup(func() {
		_ = broker.Process.Signal(syscall.SIGTERM)
		_ = broker.Wait()
	})
	p.until("the broker listens", func() bool { return strings.Contains(log.String(), "NATS server at") })
	return "nats://" + address
}

func (p *stockedPool) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatalf("%v\n%s", err, p.log)
	}
}

// serve starts the program and returns how long it took until it said that it serves.
func (p *stockedPool) serve() time.Duration {
	p.Helper()
	p.process, p.log = exec.Command("penstock", p.args...), &syncBuffer{}
	p.process.Env = append(os.Environ(), "PENSTOCK_DATA="+p.data, "HOME="+filepath.Dir(p.data))
	p.process.Stdout, p.process.Stderr = p.log, p.log
	began := time.Now()
	p.must(p.process.Start())
	p.until("penstock serves", func() bool { return strings.Contains(p.log.String(), "serving") })
	return time.Since(began)
}

func (p *stockedPool) stop(sig syscall.Signal) {
	_ = p.process.Process.Signal(sig)
	_ = p.process.Wait()
}

// until polls what another process does.
func (p *stockedPool) until(what string, done func() bool) {
	p.Helper()
	for limit := time.Now().Add(slowtest.Limit(5 * time.Minute)); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			p.Fatalf("it takes too long until %s\n%s", what, p.log)
		}
	}
}

// leads waits until the pool's leader has so many jobs in its index.
func (p *stockedPool) leads(kept int) {
	p.Helper()
	p.until("the leader knows all jobs", func() bool {
		n := 0
		for q, err := range p.client.Queues().List(p.Context()) {
			if err != nil {
				return false // it is away
			}
			n += q.Pending + q.Finished + q.Executing
		}
		return n == kept
	})
}

// get returns what the admin address shows.
func (p *stockedPool) get(path string) string {
	p.Helper()
	res, err := http.Get("http://" + p.admin + path)
	p.must(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	p.must(err)
	if res.StatusCode != http.StatusOK {
		p.Fatalf("%s: %s\n%s", path, res.Status, body)
	}
	return string(body)
}

// memory is what the process has of the host's, and has had at most, in MiB.
func (p *stockedPool) memory() (now, peak float64) {
	p.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.process.Process.Pid))
	p.must(err)
	of := func(field string) float64 {
		_, after, _ := strings.Cut(string(status), field+":")
		kib, err := strconv.Atoi(strings.Fields(after)[0])
		p.must(err)
		return float64(kib) / 1024
	}
	return of("VmRSS"), of("VmHWM")
}

// stockBatches is how many batches the jobs of a stock are in, and stockQueues how many queues.
const (
	stockBatches = 100
	stockQueues  = 10
)

// stockJob is a job as it is stored: its record and its specification.
func stockJob(n int, finished bool) (jobs.Record, jobs.Job) {
	job := jobs.Job{
		Prompt: "Fix the typo in the README, and nothing else.", Queue: fmt.Sprint("q", n%stockQueues), Batch: fmt.Sprint("batch-", n%stockBatches), Item: strconv.Itoa(n),
		Isolation: jobs.IsolationNone, Labels: map[string]string{"team": "web"}, Agent: jobs.Agent{Name: "command", Command: []string{"true"}},
	}.WithDefaults()
	rec := jobs.NewRecord(jobs.NewID(), "default", job, time.Now())
	rec.Source = "cli"
	if finished {
		at := rec.Submitted.Add(time.Second)
		rec.State, rec.Attempt, rec.Counted, rec.Worker, rec.Epoch = jobs.Finished, 1, 1, "worker-1", uint64(n+1)
		rec.Outcome, rec.Started, rec.Finished = jobs.Success, &at, &at
	}
	return rec, job
}

// stockEvent is the last event of a job's session.
func stockEvent(rec jobs.Record) jobs.Event {
	e := event.New(event.JobSubmitted{Batch: rec.Batch, Item: rec.Item, Queue: rec.Queue, Priority: rec.Priority, Title: rec.Title})
	e.Seq = 1
	if rec.State == jobs.Finished {
		e = event.New(event.JobFinished{ID: rec.Item, Job: rec.ID, Session: rec.Session, Outcome: rec.Outcome, Attempts: 1, Worker: rec.Worker})
		e.Seq, e.Attempt = 8, 1
	}
	e.Time, e.Job, e.Session, e.Agent = rec.Submitted, rec.ID, rec.Session, rec.Agent
	return e
}

// fill writes jobs into the broker, in atomic batches: so many that have finished, and so
// many that are queued. Of each it writes the record, the specification and the last event of
// its session.
func (p *stockedPool) fill(finished, queued int) {
	p.Helper()
	for n := range min(queued, stockQueues) { // so that the pool has the queues
		_, job := stockJob(n, false)
		_, err := p.client.Submit(p.Context(), job)
		p.must(err)
	}
	began := time.Now()
	specs, events, records := p.batcher(), p.batcher(), p.batcher()
	for n := range finished + max(0, queued-stockQueues) {
		rec, job := stockJob(n, n < finished)
		specs.add("$KV.ps_specs."+rec.ID, job, 0)
		events.add("penstock.v1.sessions.default."+rec.Session+".events", stockEvent(rec), 0)
		ttl := 0
		if n < finished {
			ttl = 30 * 24 * 3600
		}
		records.add("$KV.ps_jobs."+rec.Class+"."+rec.ID, rec, ttl)
		if len(records.waiting) == batchSize {
			specs.send() // a record is made after the two
			events.send()
			records.send()
		}
	}
	specs.send()
	events.send()
	records.send()
	p.Logf("%d finished and %d queued jobs were written in %v", finished, queued, time.Since(began).Round(time.Second))
}

// batchSize is how many messages a batch has; the broker allows a thousand.
const batchSize = 500

// A batcher stores messages of one stream, many in one write.
type batcher struct {
	*stockedPool
	waiting []*nats.Msg
}

func (p *stockedPool) batcher() *batcher { return &batcher{stockedPool: p} }

func (b *batcher) add(subject string, value any, ttl int) {
	b.Helper()
	data, err := json.Marshal(value)
	b.must(err)
	m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{}}
	if ttl > 0 {
		m.Header.Set("Nats-TTL", strconv.Itoa(ttl))
	}
	b.waiting = append(b.waiting, m)
}

// send stores what was added. A busy broker drops a batch that comes too slowly, as a whole.
func (b *batcher) send() {
	b.Helper()
	for refused := b.try(); refused != ""; refused = b.try() {
		if !strings.Contains(refused, "incomplete") {
			b.Fatalf("store a batch: %s", refused)
		}
	}
	b.waiting = b.waiting[:0]
}

// try sends the batch once, and returns what the broker says against it.
func (b *batcher) try() string {
	b.Helper()
	id := rand.Text()
	for i, m := range b.waiting {
		m.Header.Set("Nats-Batch-Id", id)
		m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		if i < len(b.waiting)-1 {
			b.must(b.nc.PublishMsg(m))
			continue
		}
		m.Header.Set("Nats-Batch-Commit", "1")
		reply, err := b.nc.RequestMsg(m, time.Minute)
		b.must(err)
		var ack struct {
			Error json.RawMessage `json:"error"`
		}
		b.must(json.Unmarshal(reply.Data, &ack))
		return string(ack.Error)
	}
	return ""
}
