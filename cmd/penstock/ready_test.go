package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs/jobstest"
)

// A dispatcher whose store takes no job is not ready, and is again when there is room.
func TestAFullStoreIsNotReady(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.env = append(f.env, "PENSTOCK_RETENTION_STORE_BYTES=32MiB")
	admin := fmt.Sprint("127.0.0.1:", jobstest.FreePort(f))
	f.start("serving", "serve", "--listen", fmt.Sprint("127.0.0.1:", jobstest.FreePort(f)), "--admin", admin)
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
	js, err := f.bus().JetStream()
	f.must(err)
	_, err = js.AddStream(&nats.StreamConfig{Name: "BALLAST", Subjects: []string{"ballast"}})
	f.must(err)
	full := false
	for range 128 { // twice the store
		if _, err := js.Publish("ballast", make([]byte, 1<<19)); err != nil {
			full = true
			break
		}
	}
	if !full {
		t.Fatal("the store has no limit")
	}
	ready(http.StatusServiceUnavailable, "store is full")
	f.must(js.DeleteStream("BALLAST"))
	ready(http.StatusOK, "[+] store")
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
