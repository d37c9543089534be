package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/session"
)

// BenchmarkLogs prints a long session, which has as many events as PENSTOCK_BENCH_EVENTS says,
// by the command, in lines and as JSON, and reads it by a plain consumer, which only counts: all
// in turn, in processes beside the pool's.
func BenchmarkLogs(b *testing.B) {
	events := size("PENSTOCK_BENCH_EVENTS", 200_000)
	p := newStockedPool(b, false)
	_, job := stockJob(0, false)
	made, err := p.client.Submit(b.Context(), job)
	p.must(err)
	p.writeEvents(made.ID, events)
	logs := func(flags ...string) func() {
		return func() {
			cmd := exec.Command("penstock", append([]string{"logs", made.ID}, flags...)...)
			cmd.Env = append(os.Environ(), "PENSTOCK_DATA="+p.data)
			cmd.Stderr = p.log
			p.must(cmd.Run())
		}
	}
	ways := []struct {
		name string
		read func()
	}{
		{"plain-consumer", func() { p.consume("penstock.v1.sessions.default."+made.ID+".events", events) }},
		{"logs", logs()}, {"logs-jsonl", logs("-o", "jsonl")},
	}
	took := make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, way := range ways {
			began := time.Now()
			way.read()
			took[i] = append(took[i], time.Since(began))
		}
	}
	for i, way := range ways {
		slices.Sort(took[i])
		middle := took[i][len(took[i])/2]
		b.ReportMetric(middle.Seconds(), way.name+"-s")
		b.ReportMetric(middle.Seconds()/took[0][len(took[0])/2].Seconds(), way.name+"-ratio")
	}
	b.ReportMetric(0, "ns/op")
}

// writeEvents writes what an agent prints into the session of a job, until it has so many events.
func (p *stockedPool) writeEvents(id string, events int) {
	p.Helper()
	log, err := session.Open(p.Context(), p.nc, session.Config{Bind: true})
	p.must(err)
	w, err := log.Writer(p.Context(), session.Source{Job: id, Session: id, Attempt: 1, Epoch: 1}, event.New(event.JobClaimed{}))
	p.must(err)
	var lines []jobs.Event
	for n := 2; n < events; n++ { // after those of the submission and the claim
		lines = append(lines, event.New(event.OutputLine{Stream: "stdout", Text: fmt.Sprintf("line %d of a build, which says little", n)}))
		if len(lines) == 500 || n == events-1 {
			p.must(w.Append(p.Context(), lines...))
			lines = lines[:0]
		}
	}
}

// consume reads all messages of a subject as programs do that know nothing of Penstock.
func (p *stockedPool) consume(subject string, want int) {
	p.Helper()
	js, err := jetstream.New(p.nc)
	p.must(err)
	consumer, err := js.OrderedConsumer(p.Context(), "PS_EVENTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	p.must(err)
	messages, err := consumer.Messages()
	p.must(err)
	defer messages.Stop()
	for n := 0; n < want; n++ {
		_, err := messages.Next()
		p.must(err)
	}
}
