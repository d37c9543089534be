package site

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/penstock-run/penstock/docs"
)

func config(pages fs.FS) Config {
	return Config{Pages: pages, Title: "Tool", Source: "https://example.com/blob/main/", Folder: "docs", Release: "v1"}
}

func made(tb testing.TB, pages map[string]string) *Site {
	tb.Helper()
	files := fstest.MapFS{}
	for name, text := range pages {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	s, err := New(config(files))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestSite(t *testing.T) {
	s := made(t, map[string]string{
		"README.md":        "# Home\n\n## To do\n\n- [Use `it`](how-to/use.md): a guide\n- [Far](https://example.com)\n\n## To look up\n\n- [All](reference/all.md)",
		"how-to/use.md":    "# Use it\n\n<script>alert(1)</script>\n\nSee [all](../reference/all.md#the-end-1), [below](#a_b--c), [home](../), [code](../../jobs/job.go#L3) and ![a picture](../pictures/a.svg).\n\n## A_b & c\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
		"reference/all.md": "# All\n\n## The end\n\none\n\n## The end\n\ntwo `penstock run`\n\n```\nthree\n```\n",
		"pictures/a.svg":   "<svg/>",
		"old.md":           "# Old\n\nThis page is [the guide](how-to/use.md) now.",
		"other.bin":        "",
	})
	if err := s.Check(); err != nil {
		t.Errorf("got %v", err)
	}
	if want := []string{"jobs/job.go"}; !slices.Equal(s.Outside, want) {
		t.Errorf("got %q outside, want %q", s.Outside, want)
	}
	for name, want := range map[string][]string{
		"index.html": {"<title>Home · Tool</title>", `<a href="how-to/use.html">Use it</a>`, `<summary>To look up</summary>`},
		"how-to/use.html": {
			`href="../reference/all.html#the-end-1"`, `href="../how-to/use.html#a_b--c"`, `id="a_b--c"`, `href="../index.html"`, `href="https://example.com/blob/main/jobs/job.go#L3"`, `src="../pictures/a.svg"`,
			"<td>1</td>", `<link rel="stylesheet" href="../style.css">`, "<details open>\n<summary>To do</summary>", `<a href="../how-to/use.html" aria-current="page">Use it</a>`,
		},
		"search-index.js": {`{"Address":"reference/all.html#the-end-1","Page":"All","Title":"The end","Text":"two penstock run three"}`},
	} {
		for _, text := range want {
			if !strings.Contains(string(s.Files()[name]), text) {
				t.Errorf("%s: got\n%s\nwant in it %s", name, s.Files()[name], text)
			}
		}
	}
	if text := string(s.Files()["how-to/use.html"]); strings.Contains(text, "alert") {
		t.Errorf("a page has its own HTML:\n%s", text)
	}
	if _, ok := s.Files()["other.bin"]; ok {
		t.Error("the site has a file of an unknown kind")
	}
	if strings.Contains(string(s.Files()["search-index.js"]), "Old") {
		t.Error("the search finds a page that has moved")
	}
}

func TestCheck(t *testing.T) {
	s := made(t, map[string]string{
		"README.md": "# Home\n\n[no page](none.md) [no heading](use.md#none) [no picture](a.md)\n\n![none](none.png)\n\n[out](../../etc/passwd)",
		"use.md":    "# Use\n\n[back](README.md)",
		"orphan.md": "# Orphan\n\nNothing [leads](use.md) here.\n\nReally.",
		"a.md":      "# A",
	})
	err := s.Check()
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	want := []string{
		"README.md: there is no page docs/none.md", "README.md: use.md has no heading #none", "README.md: there is no picture none.png",
		"README.md: there is no page ../etc/passwd", "orphan.md: no link leads from README.md to it",
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestServe(t *testing.T) {
	s := made(t, map[string]string{"README.md": "# Home\n\n[a](b/a.md) [b](b/README.md)", "b/a.md": "# A", "b/README.md": "# B"})
	for _, c := range []struct {
		path string
		code int
		kind string
		want string
	}{
		{"/", 200, "text/html; charset=utf-8", "<h1"},
		{"/b/", 200, "text/html; charset=utf-8", ">B</h1>"},
		{"/b/a.html", 200, "text/html; charset=utf-8", ">A</h1>"},
		{"/style.css", 200, "text/css; charset=utf-8", "body"},
		{"/search.js", 200, "text/javascript; charset=utf-8", "search"},
		{"/../../etc/passwd", 404, "text/plain; charset=utf-8", "no such page"},
		{"/b/none.html", 404, "text/plain; charset=utf-8", "no such page"},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = c.path
		s.ServeHTTP(w, r)
		if w.Code != c.code || w.Header().Get("Content-Type") != c.kind || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: got %d %s %.200q", c.path, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
		if got := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'; ") || !strings.Contains(got, "frame-ancestors 'none'") || strings.Contains(got, "unsafe") {
			t.Errorf("%s: the policy is %q", c.path, got)
		}
	}
}

func TestWrite(t *testing.T) {
	s, dir := made(t, map[string]string{"README.md": "# Home\n\n[a](b/a.md)", "b/a.md": "# A"}), t.TempDir()
	if err := s.Write(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range s.Files() {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != string(want) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

// TestDocumentation checks the documentation: each link leads to a page and a heading, or a
// file of the repository, and each page is reached from the first one.
func TestDocumentation(t *testing.T) {
	s, err := New(config(docs.Files))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	for _, file := range s.Outside {
		if _, err := os.Stat(filepath.Join("../../..", file)); err != nil {
			t.Errorf("a page has a link to %v", err)
		}
	}
	if len(s.nav) < 2 || len(s.Files()) < 50 {
		t.Errorf("got %d parts and %d files", len(s.nav), len(s.Files()))
	}
}
