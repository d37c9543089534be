package sse

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs/jobstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stream ends when nothing comes any more, and says so; when it is to end before that,
// it does so at once, and says nothing.
func TestTheEndOfAStream(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(context.Background())
	endless := func(yield func(int, error) bool) {
		for n := 0; n < 3 || ctx.Err() == nil; n++ {
			if n == 3 {
				end()
				<-ctx.Done()
				return
			}
			if !yield(n, nil) {
				return
			}
		}
	}
	three := func(yield func(int, error) bool) {
		for n := range 3 {
			if !yield(n, nil) {
				return
			}
		}
	}
	for _, tt := range []struct {
		name   string
		values iter.Seq2[int, error]
		told   bool
	}{{"nothing comes any more", three, true}, {"it is to end", endless, false}} {
		result := make(chan error, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			stream := Stream[int]{Event: func(n int) (Event, error) {
				return Event{ID: fmt.Sprint(n), Name: "number", Data: fmt.Append(nil, n)}, nil
			}}
			result <- stream.Serve(ctx, w, tt.values)
		}))
		res, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			told = told || lines.Text() == "event: "+End
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
		if err := <-result; told != tt.told || (err == nil) != tt.told {
			t.Errorf("%s: told %v, %v", tt.name, told, err)
		}
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	}
}

// A reader that takes nothing is cut off, and no more is read for it than what is held.
func TestAReaderThatTakesNothing(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	read := 0
	result := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stream := Stream[string]{Patience: 100 * time.Millisecond, Event: func(s string) (Event, error) {
			return Event{ID: "1", Name: "text", Data: []byte(s)}, nil
		}}
		result <- stream.Serve(context.Background(), w, func(yield func(string, error) bool) {
			for long := strings.Repeat("x", 1<<20); yield(long, nil); {
				mu.Lock()
				read++
				mu.Unlock()
			}
		})
	}))
	res, err := http.Get(server.URL) // and its body is not read
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-result:
		if err == nil {
			t.Error("a reader that took nothing was told the end")
		}
	case <-time.After(jobstest.Patience):
		t.Fatal("a reader that takes nothing keeps its connection")
	}
	mu.Lock()
	if read > 2*ahead+16 { // what the kernel holds of both ends
		t.Errorf("%d MiB were read for it", read)
	}
	mu.Unlock()
	if err := res.Body.Close(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	server.Close()
	http.DefaultClient.CloseIdleConnections()
}

// Whatever data says, none of its lines is a field of the stream.
func TestAnEventInAStream(t *testing.T) {
	for _, tt := range []struct {
		event Event
		want  string
	}{
		{Event{ID: "7", Name: "message", Data: []byte(`{"a":1}`)}, "id: 7\nevent: message\ndata: {\"a\":1}\n\n"},
		{Event{ID: "8", Name: "message", Data: []byte("a\r\nid: 9\revent: end\n\nb")}, "id: 8\nevent: message\ndata: a\ndata: id: 9\ndata: event: end\ndata: \ndata: b\n\n"},
		{Event{ID: "9", Name: "message"}, "id: 9\n\n"},
	} {
		if got := string(tt.event.append(nil)); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// A reader goes on behind the last event that it has, which its address may not say.
func TestAfter(t *testing.T) {
	for _, tt := range []struct {
		header  string
		from    uint64
		want    uint64
		resumed bool
		bad     bool
	}{
		{"", 5, 5, false, false},
		{"9", 5, 9, true, false},
		{"3", 5, 5, true, false},
		{"-1", 5, 0, true, true},
		{"x", 5, 0, true, true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if tt.header != "" {
			r.Header.Set("Last-Event-ID", tt.header)
		}
		got, resumed, err := After(r, tt.from)
		if got != tt.want || resumed != tt.resumed || (err != nil) != tt.bad {
			t.Errorf("%q behind %d: %d, %v, %v", tt.header, tt.from, got, resumed, err)
		}
	}
}
