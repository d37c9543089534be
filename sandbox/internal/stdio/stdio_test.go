package stdio

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/sandbox/slowtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program hands the ends that go in to a program, which is played by a function.
func program(t *testing.T, p *Pipes, play func(in, out, errs *os.File)) (ended <-chan struct{}) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		play(p.Inside[0], p.Inside[1], p.Inside[2])
		p.CloseInside()
	}()
	return done
}

func TestBothWays(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	p, err := Plumb(Streams{Stdin: strings.NewReader("in"), Stdout: &out, Stderr: &errs}, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := program(t, p, func(in, out, errs *os.File) {
		got, err := io.ReadAll(in)
		if _, failed := out.Write(append(got, " and out"...)); err != nil || failed != nil {
			t.Error(err, failed)
		}
		if _, err := errs.WriteString("error"); err != nil {
			t.Error(err)
		}
	})
	p.Start()
	<-ended
	if err := p.Finish(false); err != nil || out.String() != "in and out" || errs.String() != "error" || p.Slowed() {
		t.Errorf("got %q and %q, err %v", &out, &errs, err)
	}
}

// The order of both outputs is kept where one writer takes both.
func TestOneWriterForBothOutputs(t *testing.T) {
	t.Parallel()
	var both bytes.Buffer
	p, err := Plumb(Streams{Stdout: &both, Stderr: &both}, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.Start()
	<-program(t, p, func(_, out, errs *os.File) {
		for i, w := range []*os.File{out, errs, out} {
			if _, err := w.WriteString(strconv.Itoa(i)); err != nil {
				t.Error(err)
			}
		}
	})
	if err := p.Finish(false); err != nil || both.String() != "012" {
		t.Errorf("got %q, err %v", &both, err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no room") }

// A writer that fails is an error, and does not block the program.
func TestAWriterThatFails(t *testing.T) {
	t.Parallel()
	p, err := Plumb(Streams{Stdout: broken{}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.Start()
	<-program(t, p, func(_, out, _ *os.File) {
		if _, err := out.Write(make([]byte, 1<<20)); err != nil { // more than a pipe holds
			t.Error(err)
		}
	})
	if err := p.Finish(false); err == nil || err.Error() != "no room" {
		t.Errorf("got %v", err)
	}
}

// Nothing is lost to the limit of a rate, and no program waits after the end.
func TestARate(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p, err := Plumb(Streams{Stdout: &out}, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	p.Start()
	began := time.Now()
	<-program(t, p, func(_, out, _ *os.File) {
		if _, err := out.Write(make([]byte, 190_000)); err != nil {
			t.Error(err)
		}
	})
	written := time.Since(began)
	if err := p.Finish(false); err != nil || out.Len() != 190_000 {
		t.Errorf("got %d bytes, err %v", out.Len(), err)
	}
	if took := time.Since(began); written < 100*time.Millisecond || took > slowtest.Limit(5*time.Second) {
		t.Errorf("written after %v, all there after %v", written, took)
	}
}

func TestBounded(t *testing.T) {
	t.Parallel()
	b := &Bounded{Left: 3}
	for range 2 {
		if n, err := b.Write([]byte("ab")); n != 2 || err != nil {
			t.Errorf("wrote %d, err %v", n, err)
		}
	}
	if string(b.Bytes()) != "aba" || b.Dropped != 1 {
		t.Errorf("kept %q, dropped %d", b.Bytes(), b.Dropped)
	}
}

// A recorder keeps how much came at once.
type recorder struct{ sizes []int }

func (r *recorder) Write(p []byte) (int, error) {
	r.sizes = append(r.sizes, len(p))
	return len(p), nil
}

// Whatever waits in a pipe is read at once, up to a bound; and a pipe that is closed here says so.
func TestAStreamIsReadInLargePieces(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit *throttle
		want  []int
	}{
		"unbounded": {nil, []int{40_000}},
		"slowed":    {newThrottle(80_000), []int{10_000, 10_000, 10_000, 10_000}},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, 40_000)); err != nil {
			t.Fatal(err)
		}
		w.Close()
		var got recorder
		if err := tt.limit.copy(&got, r); err != nil || !slices.Equal(got.sizes, tt.want) {
			t.Errorf("%s: read %v, %v, want %v", name, got.sizes, err, tt.want)
		}
		r.Close()
		if err := tt.limit.copy(&got, r); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: a closed pipe: %v", name, err)
		}
	}
}

// A pipe that is closed while its reader waits ends the copy.
func TestACopyEndsWithItsPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ended := make(chan error, 1)
	go func() { ended <- (*throttle)(nil).copy(io.Discard, r) }()
	time.Sleep(50 * time.Millisecond)
	r.Close()
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("it ended with %v", err)
	}
}
