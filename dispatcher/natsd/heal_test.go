package natsd

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// A stream that is being made or removed is no reason to start the server
// again: that cut every client off.
func TestStreamsThatComeAndGoAreNotBroken(t *testing.T) {
	t.Parallel()
	s, err := Open(Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Owner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	// One stays, as every pool has: with the last one nats-server 2.15 removes the directory of
	// them all, and another one that is made just then has no place (stream.go, stop).
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "STAYS", Subjects: []string{"stays"}}); err != nil {
		t.Fatal(err)
	}
	var makers sync.WaitGroup
	for i := range 4 {
		makers.Go(func() {
			for round := range 40 {
				name := fmt.Sprintf("S_%d_%d", i, round)
				if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}}); err != nil {
					t.Error(err)
					return
				}
				if err := js.DeleteStream(t.Context(), name); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		makers.Wait()
	}()
	for looks := 0; ; looks++ {
		select {
		case <-done:
			if looks < 10 {
				t.Errorf("the server was looked at %d times", looks)
			}
			return
		default:
			if why := broken(s.server()); why != "" {
				t.Errorf("look %d: %s", looks, why)
				<-done
				return
			}
		}
	}
}
