package wire_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

func TestMain(m *testing.M) {
	if jobstest.IsChild() {
		jobstest.ServeChild()
		return
	}
	goleak.VerifyTestMain(m, jobstest.ServersOwn()...)
}

// A laggard answers bulk reads as a server of a cluster does that has come as
// far as it has seen, and no further.
type laggard struct {
	seen []wire.Message
}

// answer makes the laggard the only one that answers bulk reads of a stream,
// which itself must not.
func (l *laggard) answer(t *testing.T, nc *nats.Conn, stream string) {
	t.Helper()
	sub, err := nc.Subscribe("$JS.API.DIRECT.GET."+stream, func(msg *nats.Msg) {
		var ask struct {
			Seq   uint64 `json:"seq"`
			Batch int    `json:"batch"`
		}
		if err := json.Unmarshal(msg.Data, &ask); err != nil {
			t.Error(err)
		}
		for _, m := range l.seen {
			if m.Seq < ask.Seq || ask.Batch == 0 {
				continue
			}
			ask.Batch--
			reply := nats.NewMsg(msg.Reply)
			reply.Data = m.Data
			reply.Header.Set("Nats-Subject", m.Subject)
			reply.Header.Set("Nats-Sequence", strconv.FormatUint(m.Seq, 10))
			reply.Header.Set("Nats-Time-Stamp", time.Now().UTC().Format(time.RFC3339Nano))
			if err := nc.PublishMsg(reply); err != nil {
				t.Error(err)
			}
		}
		end := nats.NewMsg(msg.Reply)
		end.Header.Set("Status", "204")
		if err := nc.PublishMsg(end); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sub.Drain(); err != nil {
			t.Error(err)
		}
	})
}

// lagging returns a stream of keys, the last value of each, and a laggard.
func lagging(t *testing.T) (*wire.Conn, *laggard, func(key, value string) wire.Message) {
	t.Helper()
	nc := jobstest.Start(t).Connect()
	conn, err := wire.New(nc, jobs.RoleOperator)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.JS.CreateStream(jobstest.Context(t), jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, MaxMsgsPerSubject: 1,
		RePublish: &jetstream.RePublish{Source: "s.>", Destination: "rung.>", HeadersOnly: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &laggard{}
	l.answer(t, nc, "S")
	return conn, l, func(key, value string) wire.Message {
		ack, err := conn.JS.Publish(jobstest.Context(t), "s."+key, []byte(value))
		if err != nil {
			t.Fatal(err)
		}
		return wire.Message{Subject: "s." + key, Seq: ack.Sequence, Data: []byte(value)}
	}
}

func scan(t *testing.T, conn *wire.Conn) []string {
	t.Helper()
	var got []string
	for m, err := range conn.Scan(jobstest.Context(t), wire.Range{Stream: "S", Subject: "s.*"}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Subject+"="+string(m.Data))
	}
	return got
}

// A key that is rewritten moves to the end. A server that is behind has it at
// neither place once another one that is ahead was asked for the first.
func TestAScanIsCompleteAlthoughAServerLagsBehind(t *testing.T) {
	conn, l, put := lagging(t)
	put("a", "1")
	b := put("b", "1")
	put("a", "2")
	put("c", "1")
	l.seen = []wire.Message{b} // a's first place is gone, and its second not known yet
	if got, want := scan(t, conn), []string{"s.b=1", "s.a=2", "s.c=1"}; !slices.Equal(got, want) {
		t.Errorf("scanned %q, want %q", got, want)
	}
	l.seen = nil
	if got := scan(t, conn); len(got) != 3 {
		t.Errorf("of a server that knows nothing: %q", got)
	}
}

// A request for a stream that does not exist gets no answer, just as while a
// broker is away. The scan ends in the first case; a broker may come back.
func TestAScanOfAStreamThatIsNotThere(t *testing.T) {
	server := jobstest.Start(t)
	conn, err := wire.New(server.Connect(), jobs.RoleOperator)
	if err != nil {
		t.Fatal(err)
	}
	ctx := jobstest.Context(t)
	for _, err := range conn.Scan(ctx, wire.Range{Stream: "S", Subject: "s.*"}) {
		if !wire.NoStream(err) || !strings.Contains(err.Error(), "read S: stream not found") {
			t.Errorf("scanned: %v", err)
		}
	}
	if _, err := conn.JS.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	if got := scan(t, conn); len(got) != 0 {
		t.Errorf("of an empty stream: %q", got)
	}
}

// A watcher that hears of a message asks for it at once, whichever server answers.
func TestATailDoesNotWaitForAServerThatLagsBehind(t *testing.T) {
	conn, _, put := lagging(t)
	put("a", "1")
	caught := make(chan struct{}, 100)
	seen := make(chan string) // has no room: the end comes after the last was taken
	done := make(chan error, 1)
	go func() {
		for m, err := range conn.Tail(jobstest.Context(t), wire.Range{Stream: "S", Subject: "s.*"}, "rung.>", func() bool {
			caught <- struct{}{}
			return true
		}) {
			if err != nil {
				done <- err
				return
			}
			seen <- string(m.Data)
			if string(m.Data) == "last" {
				done <- nil
				return
			}
		}
		done <- fmt.Errorf("it ended")
	}()
	notified := func() string {
		select {
		case value := <-seen:
			return value
		case err := <-done:
			t.Fatal(err)
		case <-time.After(jobstest.Patience):
			t.Fatal("nothing was told")
		}
		return ""
	}
	if first := notified(); first != "1" {
		t.Errorf("first %q", first)
	}
	<-caught
	for n := range 20 {
		put("b", strconv.Itoa(n))
		notified()
	}
	put("b", "last")
	notified()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What the broker announces one by one is read by one request each, and what it announces
// while a batch is read is not asked for again.
func TestATailAsksOnceForEachMessage(t *testing.T) {
	t.Parallel()
	nc, conn := rung(t)
	var requests atomic.Int32
	if _, err := nc.Subscribe("$JS.API.DIRECT.GET.S", func(*nats.Msg) { requests.Add(1) }); err != nil {
		t.Fatal(err)
	}
	const messages = 20
	read := 0
	var before int32
	for _, err := range conn.Tail(jobstest.Context(t), wire.Range{Stream: "S", Subject: "s.*"}, "rung.>", func() bool {
		if read == 0 {
			before = requests.Load()
		}
		if read < messages {
			if _, err := conn.JS.Publish(jobstest.Context(t), "s."+strconv.Itoa(read%3), nil); err != nil {
				t.Error(err)
			}
		}
		return read < messages
	}) {
		if err != nil {
			t.Fatal(err)
		}
		read++
	}
	// Its own look, every two seconds, costs one more.
	if n := requests.Load() - before; n > messages+messages/2 {
		t.Errorf("%d messages were read by %d requests", messages, n)
	}
}

// Of many readers on one connection, a few read a batch at the same time: the broker ends a
// connection that is sent more than it takes.
func TestFewBatchesAtOnce(t *testing.T) {
	t.Parallel()
	conn, _, _ := lagging(t)
	var mu sync.Mutex
	var held []*nats.Msg
	most := 0
	answer := func() {
		mu.Lock()
		asked := held
		most, held = max(most, len(held)), nil
		mu.Unlock()
		for _, msg := range asked {
			end := nats.NewMsg(msg.Reply)
			end.Header.Set("Status", "204")
			if err := conn.NC.PublishMsg(end); err != nil {
				t.Error(err)
			}
		}
	}
	sub, err := conn.NC.Subscribe("$JS.API.DIRECT.GET.T", func(msg *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if held = append(held, msg); len(held) == 1 {
			time.AfterFunc(100*time.Millisecond, answer) // when all have come that come at once
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.JS.CreateStream(jobstest.Context(t), jetstream.StreamConfig{Name: "T", Subjects: []string{"t.>"}}); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 64 {
		readers.Go(func() {
			for _, err := range conn.Scan(jobstest.Context(t), wire.Range{Stream: "T", Subject: "t.*"}) {
				t.Errorf("an empty stream: %v", err)
			}
		})
	}
	readers.Wait()
	if err := sub.Unsubscribe(); err != nil {
		t.Error(err)
	}
	if most == 0 || most > 16 {
		t.Errorf("%d batches were read at once, want 16 at most", most)
	}
}

// rung makes a stream of last values whose changes are announced below "rung.".
func rung(t *testing.T) (*nats.Conn, *wire.Conn) {
	t.Helper()
	nc := jobstest.Start(t).Connect()
	conn, err := wire.New(nc, jobs.RoleOperator)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.JS.CreateStream(jobstest.Context(t), jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, MaxMsgsPerSubject: 1, AllowDirect: true,
		RePublish: &jetstream.RePublish{Source: "s.>", Destination: "rung.>", HeadersOnly: true},
	}); err != nil {
		t.Fatal(err)
	}
	return nc, conn
}
