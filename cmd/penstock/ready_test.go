package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A dispatcher whose store takes no job is not ready, and is again when there is room.
func TestAFullStoreIsNotReady(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.env = append(f.env, "PENSTOCK_RETENTION_STORE_BYTES=32MiB")
	admin := freeAddress(f)
	f.start("serving", "serve", "--listen", freeAddress(f), "--admin", admin)
	ready := func(want int, says string) {
		t.Helper()
		f.eventually(20*time.Second, fmt.Sprintf("readyz answers %d", want), func() bool {
			resp, err := http.Get("http://" + admin + "/readyz?verbose") //nolint:noctx // our own program, on loopback
			f.must(err)
			f.must(resp.Body.Close())
			return resp.StatusCode == want
		})
		if text := f.page("http://" + admin + "/readyz?verbose"); !strings.Contains(text, says) {
			t.Errorf("readyz says %s, want %s", text, says)
		}
	}
	ready(http.StatusOK, "[+] store")
	empty := f.fillStore(64 << 20)
	ready(http.StatusServiceUnavailable, "store is full")
	empty()
	ready(http.StatusOK, "[+] store")
}

// fillStore has another program fill the broker's store, which is smaller than most bytes,
// and returns what makes room again.
func (f *fixture) fillStore(most int) (empty func()) {
	f.Helper()
	js, err := f.bus().JetStream()
	f.must(err)
	_, err = js.AddStream(&nats.StreamConfig{Name: "BALLAST", Subjects: []string{"ballast"}})
	f.must(err)
	for _, size := range []int{1 << 19, 1 << 12, 1} {
		for err = nil; err == nil; _, err = js.Publish("ballast", make([]byte, size)) {
			if most -= size; most < 0 {
				f.Fatal("the store has no limit")
			}
		}
	}
	return func() { f.must(js.DeleteStream("BALLAST")) }
}

// page is what an address answers.
func (f *fixture) page(url string) string {
	f.Helper()
	resp, err := http.Get(url) //nolint:gosec,noctx // our own program, on loopback
	f.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	f.must(err)
	return string(text)
}
