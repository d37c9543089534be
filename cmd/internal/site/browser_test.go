package site

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/dashboard/browsertest"
	"github.com/penstock-run/penstock/docs"
)

// A real browser finds nothing to complain about, in light and dark, on a desk and on a
// phone, and the search finds a page.
func TestBrowser(t *testing.T) {
	t.Parallel()
	node, chromium := browsertest.Programs(t, browsertest.Puppeteer, browsertest.Axe)
	s, err := New(config(docs.Files))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	task, err := json.Marshal(map[string]any{
		"url": server.URL, "chromium": chromium, "pages": []string{"/", "/reference/exit-codes.html"},
		"search": "exit codes", "finds": "/reference/exit-codes.html",
	})
	if err != nil {
		t.Fatal(err)
	}
	browsertest.Browse(t, node, "testdata/browse.cjs", task)
}
