package wire_test

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// texts reads a whole sequence.
func texts(t *testing.T, messages iter.Seq2[wire.Message, error]) []string {
	t.Helper()
	var got []string
	for m, err := range messages {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(m.Data))
	}
	return got
}

// The data of all messages is read, each once and in order, over several batches of a stream that
// has other messages between them. A caller may stop anywhere.
func TestData(t *testing.T) {
	t.Parallel()
	conn, err := wire.New(jobstest.Start(t).Connect(), jobs.RoleOperator)
	if err != nil {
		t.Fatal(err)
	}
	ctx := jobstest.Context(t)
	if _, err := conn.JS.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	all := wire.Range{Stream: "S", Subject: "s.a"}
	if got := texts(t, all.Data(ctx, conn)); len(got) != 0 {
		t.Errorf("of an empty stream: %q", got)
	}
	const many = 9000 // more than two batches have
	var want []string
	for n := range many {
		text := fmt.Sprint("message ", n)
		want = append(want, text)
		if n%100 == 0 {
			if _, err := conn.JS.PublishAsync("s.other", []byte("not this"), jetstream.WithStallWait(jobstest.Patience)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := conn.JS.PublishAsync("s.a", []byte(text), jetstream.WithStallWait(jobstest.Patience)); err != nil {
			t.Fatal(err)
		}
		if n%1000 == 999 { // the client bounds how many it waits for
			<-conn.JS.PublishAsyncComplete()
		}
	}
	if got := texts(t, all.Data(ctx, conn)); !slices.Equal(got, want) {
		t.Errorf("%d messages were read, want %d, or they differ", len(got), many)
	}
	all.From = 5000
	later := texts(t, all.Data(ctx, conn))
	if len(later) == 0 || !slices.Equal(later, want[many-len(later):]) {
		t.Errorf("%d messages from the sequence 5000 on, or they are others", len(later))
	}
	for _, stop := range []int{1, 4096, 4097} {
		n := 0
		for _, err := range all.Data(ctx, conn) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == stop {
				break
			}
		}
	}
}

// A server that has headers all the same, or is behind, hides nothing.
func TestDataIsCompleteAlthoughAServerLagsBehind(t *testing.T) {
	t.Parallel()
	conn, l, put := lagging(t)
	put("a", "1")
	b := put("b", "2")
	put("a", "3")
	put("c", "4")
	l.seen = []wire.Message{b}
	if got, want := texts(t, wire.Range{Stream: "S", Subject: "s.*"}.Data(jobstest.Context(t), conn)), []string{"2", "3", "4"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}
