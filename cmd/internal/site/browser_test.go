package site

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/dashboard/browsertest"
	"github.com/penstock-run/penstock/docs"
)

// A real browser finds nothing to complain about on any page, on a desk in light or on a
// phone in dark by turns, and the search finds a page.
func TestBrowser(t *testing.T) {
	t.Parallel()
	node, chromium := browsertest.Programs(t, browsertest.Puppeteer, browsertest.Axe)
	s, err := New(config(docs.Files))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	var pages []string
	for name := range s.Files() {
		if strings.HasSuffix(name, ".html") {
			pages = append(pages, "/"+name)
		}
	}
	slices.Sort(pages)
	task, err := json.Marshal(map[string]any{
		"url": server.URL, "chromium": chromium, "pages": pages,
		"search": "exit codes", "finds": "/reference/exit-codes.html",
	})
	if err != nil {
		t.Fatal(err)
	}
	browsertest.Browse(t, node, "testdata/browse.cjs", task)
}
