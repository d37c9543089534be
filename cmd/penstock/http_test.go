package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// serveHTTP starts a pool with an address of HTTP.
func (f *fixture) serveHTTP(args ...string) (address string) {
	f.Helper()
	address = freeAddress(f)
	f.serve(append([]string{"--http", address}, args...)...)
	return address
}

// What the page about HTTP prints submits a job, follows it, and reads its patch.
func TestDocumentedHTTP(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			skip(t, program, "no %s", program)
		}
	}
	f := newFixture(t)
	address := f.serveHTTP("--slots", "1")
	ctx, cancel := context.WithTimeout(t.Context(), slowtest.Limit(time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", strings.ReplaceAll(documented(t, "http.md", "sh", "readme-1"), "127.0.0.1:8080", address))
	cmd.Env = append(os.Environ(), "PENSTOCK_DATA="+f.data, "REPO="+f.repo)
	out, err := cmd.CombinedOutput()
	got := string(out)
	if err != nil || !strings.HasPrefix(got, "event: job.submitted\nevent: job.claimed\n") || !strings.HasSuffix(got, "event: job.finished\nevent: end\nfinished success\n+hi\n") {
		t.Errorf("the page prints\n%s%v", got, err)
	}
}

// The default address is replaced where another program has it, one that was asked for
// is not, and beyond loopback there is TLS, whose certificate is read again.
func TestAddressOfHTTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--http", "0.0.0.0:0"}, 2, "--http-tls-cert"},
		{[]string{"--http", "8080"}, 2, "127.0.0.1:8080"},
		{[]string{"--http", "127.0.0.1:1", "--http-tls-cert", "/nothing", "--http-tls-key", "/nothing"}, 2, "--http-tls-cert"},
	} {
		_, code, said := f.try(append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", ""}, c.args...)...)
		if code != c.code || !strings.Contains(said, c.want) {
			t.Errorf("serve %v: %d %s", c.args, code, said)
		}
	}
	ca := f.authority("ca")
	cert, key := ca.issue("server", time.Now().Add(time.Hour))
	address := freeAddress(f)
	pool := f.start("serving", "serve", "--listen", "127.0.0.1:0", "--admin", "", "--http", address, "--http-tls-cert", cert, "--http-tls-key", key)
	if want := "HTTP at https://" + address; !strings.Contains(pool.log.String(), want) {
		t.Errorf("serve says %s, want %s", pool.log, want)
	}
	if _, code, said := f.try("serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--admin", "", "--http", address); code == 0 || !strings.Contains(said, "--http") {
		t.Errorf("an address that is taken: %d %s", code, said)
	}
	first := f.serialOf(address, ca.file)
	ca.issue("server", time.Now().Add(time.Hour)) // over the files of the first
	f.eventually(30*time.Second, "the new certificate is served", func() bool { return f.serialOf(address, ca.file) != first })
}

// serialOf asks over TLS who it is, and returns the serial number of the certificate.
func (f *fixture) serialOf(address, authority string) string {
	f.Helper()
	pem, err := os.ReadFile(authority)
	f.must(err)
	token, err := httpapi.OpenToken(f.data)
	f.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	r, err := http.NewRequestWithContext(f.Context(), http.MethodGet, "https://"+address+"/v1/version", nil)
	f.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := client.Do(r)
	f.must(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	f.must(err)
	if res.StatusCode != http.StatusOK || !strings.Contains(string(body), `"role":"operator"`) {
		f.Errorf("version: %d %s", res.StatusCode, body)
	}
	return res.TLS.PeerCertificates[0].SerialNumber.String()
}
