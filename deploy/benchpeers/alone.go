package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
)

// What Penstock keeps of a job of the default queue, as docs/reference/subjects.md has it.
const (
	records = "KV_ps_jobs"
	record  = "$KV.ps_jobs.default."
	specs   = "KV_ps_specs"
	spec    = "$KV.ps_specs."
	lane    = "penstock.v1.q.default.p1.default."
	lanes   = "PS_Q_DEFAULT_P1"
)

// alone sends the broker what Penstock sends of each job, one message after the other, and
// does nothing else: it decides nothing, and makes no JSON. So it tells what Penstock can
// reach with these messages, where it does not send several as one batch.
type alone struct {
	penstock
	nc         *nats.Conn
	js         jetstream.JetStream
	kept, said []byte // the record of a job, and its specification
}

func startAlone(ctx context.Context, dir string) (peer, error) {
	p := &alone{}
	return p, p.serve(ctx, dir)
}

// open takes one job through the real queue, which makes the streams and the messages.
func (p *alone) open(ctx context.Context, workers int, started func(int)) (err error) {
	ctx, p.stop = context.WithCancel(ctx)
	if p.q, err = p.connect(ctx); err != nil {
		return err
	}
	if p.nc, err = nats.Connect(p.url); err != nil {
		return err
	}
	p.closed = append(p.closed, p.nc)
	if p.js, err = jetstream.New(p.nc); err != nil {
		return err
	}
	if err := p.learn(ctx); err != nil {
		return fmt.Errorf("a job of the real queue: %w", err)
	}
	consumer, err := p.js.Consumer(ctx, lanes, "w")
	if err != nil {
		return err
	}
	offered, err := consumer.Messages(jetstream.PullMaxMessages(workers))
	if err != nil {
		return err
	}
	p.all.Go(func() { <-ctx.Done(); offered.Stop() })
	for range workers {
		p.all.Go(func() {
			for {
				msg, err := offered.Next()
				if err != nil {
					return // it has been stopped
				}
				if err := p.work(ctx, msg, started); err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, "benchpeers: alone:", err)
				}
			}
		})
	}
	return nil
}

// learn keeps what the real queue has stored of a job.
func (p *alone) learn(ctx context.Context) error {
	if err := p.penstock.submit(ctx, 0); err != nil {
		return err
	}
	if err := p.penstock.work(ctx, p.q, 0, func(int) {}); err != nil {
		return err
	}
	p.ended.Store(0)
	last := func(stream, subject string) ([]byte, error) {
		s, err := p.js.Stream(ctx, stream)
		if err != nil {
			return nil, err
		}
		m, err := s.GetLastMsgForSubject(ctx, subject)
		if err != nil {
			return nil, err
		}
		return m.Data, nil
	}
	var err1, err2 error
	p.kept, err1 = last(records, record+"*")
	p.said, err2 = last(specs, spec+"*")
	return errors.Join(err1, err2)
}

// put stores a message where what is stored under its subject has a sequence, and returns
// its own.
func (p *alone) put(ctx context.Context, subject string, data []byte, after uint64, o ...jetstream.PublishOpt) (uint64, error) {
	ack, err := p.js.Publish(ctx, subject, data, append(o, jetstream.WithExpectLastSequencePerSubject(after))...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

func (p *alone) submit(ctx context.Context, n int) error {
	id := jobs.NewID()
	if _, err := p.put(ctx, spec+id, p.said, 0); err != nil {
		return err
	}
	seq, err := p.put(ctx, record+id, p.kept, 0)
	if err != nil {
		return err
	}
	if err := p.ask(ctx, "$JS.API.STREAM.MSG.GET.KV_ps_leader", `{"last_by_subj":"$KV.ps_leader.dispatcher"}`); err != nil {
		return err
	}
	// The real message is empty; the worker is to know what it reads.
	_, err = p.js.Publish(ctx, lane+id, fmt.Appendf(nil, "%d %d", n, seq))
	return err
}

// ask waits for an answer, whatever it is.
func (p *alone) ask(ctx context.Context, subject, data string) error {
	_, err := p.nc.RequestWithContext(ctx, subject, []byte(data))
	return err
}

// work claims and settles as Penstock does: three reads at once, a write for each, and an
// acknowledgement that the broker answers.
func (p *alone) work(ctx context.Context, msg jetstream.Msg, started func(int)) error {
	number, sequence, _ := strings.Cut(string(msg.Data()), " ")
	n, err1 := strconv.Atoi(number)
	seq, err2 := strconv.ParseUint(sequence, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	id := strings.TrimPrefix(msg.Subject(), lane)
	errs := make([]error, 3)
	var reads sync.WaitGroup
	for i, r := range [][2]string{
		{"$JS.API.DIRECT.GET." + records + "." + record + id}, {"$JS.API.DIRECT.GET." + specs + "." + spec + id},
		{"$JS.API.STREAM.MSG.GET.KV_ps_config", `{"last_by_subj":"$KV.ps_config.caps"}`},
	} {
		reads.Go(func() { errs[i] = p.ask(ctx, r[0], r[1]) })
	}
	reads.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	seq, err := p.put(ctx, record+id, p.kept, seq)
	if err != nil {
		return err
	}
	started(n)
	if _, err := p.put(ctx, record+id, p.kept, seq, jetstream.WithMsgTTL(30*24*time.Hour)); err != nil {
		return err
	}
	if err := msg.DoubleAck(ctx); err != nil {
		return err
	}
	p.ended.Add(1)
	return nil
}
