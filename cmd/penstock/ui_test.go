package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/jobstest"
)

// Penstock ui finds the server of the data directory, and its link logs a browser in, once.
// Where there is a display the link is opened and not printed.
func TestUI(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("xdg-open is of Linux")
	}
	f := newFixture(t)
	address := f.serveHTTP()
	link := strings.TrimSpace(f.run("ui", "--print"))
	// By a name that no other server of this host is known by: cookies know no ports.
	form := regexp.MustCompile(`^(http://penstock-[0-9a-f]{16}\.localhost:` + address[strings.LastIndexByte(address, ':')+1:] + `)/ui/login\?code=\w{26}$`)
	parts := form.FindStringSubmatch(link)
	if parts == nil {
		t.Fatalf("the link is %s", link)
	}
	// Browsers resolve that name by themselves.
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	jar, err := cookiejar.New(nil)
	f.must(err)
	visit := func(address string) (int, string) {
		t.Helper()
		answer, err := (&http.Client{Jar: jar, Transport: transport}).Get(address)
		f.must(err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		f.must(err)
		return answer.StatusCode, string(body)
	}
	if status, body := visit(link); status != http.StatusOK || !strings.Contains(body, "Logged in") {
		t.Errorf("the link: %d %s", status, body)
	}
	if status, body := visit(parts[1] + "/"); status != http.StatusOK || !strings.Contains(body, "<h1>Overview</h1>") || !strings.Contains(body, "operator") {
		t.Errorf("with the cookie of the link: %d %s", status, body)
	}
	if status, body := visit("http://" + address + "/"); status != http.StatusOK || !strings.Contains(body, "<h1>Log in</h1>") {
		t.Errorf("the cookie is sent to another name of this host: %d %s", status, body)
	}
	if status, _ := visit(link); status != http.StatusUnauthorized {
		t.Errorf("the link again: %d", status)
	}

	bin, opened := t.TempDir(), filepath.Join(t.TempDir(), "opened")
	f.must(os.WriteFile(filepath.Join(bin, "xdg-open"), []byte("#!/bin/sh\necho \"$1\" >"+opened+".new && mv "+opened+".new "+opened+"\n"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("DISPLAY", ":9")
	if out := f.run("ui"); out != "" {
		t.Errorf("with a display it prints %s", out)
	}
	for end := time.Now().Add(jobstest.Patience); ; time.Sleep(20 * time.Millisecond) {
		got, err := os.ReadFile(opened)
		if err == nil {
			if !form.MatchString(strings.TrimSpace(string(got))) {
				t.Errorf("it opens %s", got)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("nothing was opened")
		}
	}
}
