package attach_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-run/penstock/dispatcher/attach"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/terminal"
)

// same is an answer as text.
func same(t *testing.T, a terminal.Answer) string {
	t.Helper()
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const asksToRead = `{"number":%d,"request":{"verb":"read","attempt":1,"terminal":1}}`

// A connection has so many requests under way, and the next ones wait in it.
func TestCallsAtOnce(t *testing.T) {
	t.Parallel()
	p := open(t, attach.Config{})
	asked, release := make(chan struct{}, 3*attach.Calls), make(chan struct{})
	p.plays(func(context.Context, terminal.Request) terminal.Answer {
		asked <- struct{}{}
		<-release
		return terminal.Answer{}
	})
	socket := p.socket()
	for n := range 3 * attach.Calls {
		p.says(socket, websocket.MessageText, fmt.Sprintf(asksToRead, n+1))
	}
	for range attach.Calls {
		<-asked
	}
	select {
	case <-asked:
		t.Errorf("more than %d requests are under way", attach.Calls)
	case <-time.After(100 * time.Millisecond): // nothing more comes
	}
	close(release)
	for range 3 * attach.Calls {
		if text, end := p.hears(socket); !strings.Contains(text, `"answer"`) {
			t.Fatalf("%s, %+v", text, end)
		}
	}
}

// A viewer that takes no answers loses its connection.
func TestAViewerThatTakesNothing(t *testing.T) {
	t.Parallel()
	p := open(t, attach.Config{Patience: 300 * time.Millisecond})
	p.plays(func(context.Context, terminal.Request) terminal.Answer {
		return terminal.Answer{Data: make([]byte, terminal.MaxOutput)}
	})
	socket := p.socket()
	for n := 1; ; n++ { // until nothing is taken any more
		if err := socket.Write(jobstest.Context(t), websocket.MessageText, fmt.Appendf(nil, asksToRead, n)); err != nil {
			break
		}
		if n > 1_000_000 {
			t.Fatal("a million requests were taken, and no answer")
		}
	}
	p.ways.Wait()
}

// A connection ends with a reason when its credential is not valid any more, when nothing
// is asked over it, and when the server ends.
func TestWhyAConnectionEnds(t *testing.T) {
	t.Parallel()
	const quiet = 20 * time.Millisecond
	t.Run("credential", func(t *testing.T) {
		t.Parallel()
		p := open(t, attach.Config{Quiet: quiet})
		socket := p.socket()
		p.mu.Lock()
		p.gone = true
		p.mu.Unlock()
		if _, end := p.hears(socket); end.Code != websocket.StatusPolicyViolation || !strings.Contains(end.Reason, "credential") {
			t.Errorf("it ended with %+v", end)
		}
	})
	t.Run("unused", func(t *testing.T) {
		t.Parallel()
		p := open(t, attach.Config{Quiet: quiet, Unused: 5 * quiet})
		if _, end := p.hears(p.socket()); end.Code != websocket.StatusPolicyViolation || !strings.Contains(end.Reason, "no request") {
			t.Errorf("it ended with %+v", end)
		}
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		p := open(t, attach.Config{Quiet: quiet})
		waits := make(chan struct{})
		p.plays(func(ctx context.Context, _ terminal.Request) terminal.Answer {
			close(waits)
			<-ctx.Done() // as long as the worker lives
			return terminal.Answer{}
		})
		socket := p.socket()
		p.says(socket, websocket.MessageText, fmt.Sprintf(asksToRead, 1))
		<-waits
		p.stop()
		if _, end := p.hears(socket); end.Code != websocket.StatusGoingAway || !strings.Contains(end.Reason, "again") {
			t.Errorf("it ended with %+v", end)
		}
		p.ways.Wait() // and not for the worker
		if _, status, err := p.shake(); err == nil || status != 503 {
			t.Errorf("behind the end: %v", err)
		}
	})
}

// There are so many connections and no more; each that ends makes room.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	p := open(t, attach.Config{})
	var last *websocket.Conn
	for range attach.Connections {
		last = p.socket()
	}
	if _, status, err := p.shake(); err == nil || status != 503 {
		t.Errorf("one more: %v", err)
	}
	if err := last.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	for {
		if _, status, err := p.shake(); err == nil {
			return
		} else if status == 0 {
			t.Fatal(err)
		}
	}
}

// A viewer that is gone is noticed, though it has not said so: pings are not answered.
func TestAViewerThatIsGone(t *testing.T) {
	t.Parallel()
	p := open(t, attach.Config{Quiet: 20 * time.Millisecond, Patience: 100 * time.Millisecond})
	p.socket() // nothing reads it, so nothing answers
	p.ways.Wait()
}
