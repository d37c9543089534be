package servecmd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// An authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // PEM
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{file: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	a.key, der = certify(t, template, template, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	write(t, a.file, "CERTIFICATE", der)
	return a
}

func certify(t *testing.T, template, issuer *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	return key, der
}

func write(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue returns a certificate for a client, or for a server on loopback.
func (a authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, der := certify(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A door is an HTTP server as the settings make it.
type door struct {
	t         *testing.T
	url       string
	authority authority // of its own certificate
}

const tokenOfTest = "token-of-the-test-token-of-the-test-token-0"

func openDoor(t *testing.T, c cli.ServeConfig) door {
	t.Helper()
	d := door{t: t, authority: newAuthority(t)}
	own := d.authority.issue(t, "server")
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	c.HTTP, c.HTTPTLSCert, c.HTTPTLSKey = "127.0.0.1:0", filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	write(t, c.HTTPTLSCert, "CERTIFICATE", own.Certificate[0])
	write(t, c.HTTPTLSKey, "PRIVATE KEY", key)
	l, err := listenHTTP(c)
	if err != nil {
		t.Fatal(err)
	}
	authenticate, err := identify(c, httpapi.Bearer(tokenOfTest, httpapi.Identity{Name: "token", Role: jobs.RoleOperator}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- httpapi.New(httpapi.Config{Authenticate: authenticate}).Serve(ctx, l.Listener, l.secure)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	d.url = l.url()
	return d
}

// who asks who a client is: a name and a role, or the status of the refusal, or that there
// is no connection.
func (d door) who(cert *tls.Certificate, headers ...string) string {
	d.t.Helper()
	secure := &tls.Config{RootCAs: x509.NewCertPool()}
	secure.RootCAs.AddCert(d.authority.cert)
	if cert != nil {
		// Also one of an authority that the server does not name.
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	transport := &http.Transport{TLSClientConfig: secure}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.url+"/v1/version", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := transport.RoundTrip(r)
	if err != nil {
		return "no connection"
	}
	defer res.Body.Close()
	var v httpapi.Version
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil {
		d.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Sprint(res.StatusCode)
	}
	return v.Name + " " + string(v.Role)
}

// A client's certificate has the role of its name, if an authority of clients has issued it;
// a token says more than a certificate. The authorities are read again when the file has
// changed.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	clients, foreign := newAuthority(t), newAuthority(t)
	d := openDoor(t, cli.ServeConfig{HTTPTLSClientCA: clients.file, HTTPClients: []string{"ci=submitter", "Ann.Other@example.com=viewer"}})
	ci, ann, other, strange := clients.issue(t, "ci"), clients.issue(t, "Ann.Other@example.com"), clients.issue(t, "other"), foreign.issue(t, "ci")
	for _, tt := range []struct {
		name    string
		cert    *tls.Certificate
		headers []string
		want    string
	}{
		{"a name with a role", &ci, nil, "cert-ci submitter"},
		{"a name that is no word", &ann, nil, "cert-ann-other-example-com-" + "eeeeeeee viewer"},
		{"a name without a role", &other, nil, "401"},
		{"of another authority", &strange, nil, "no connection"},
		{"of the server's authority", new(d.authority.issue(t, "ci")), nil, "no connection"},
		{"none", nil, nil, "401"},
		{"a token alone", nil, []string{"Authorization", "Bearer " + tokenOfTest}, "token operator"},
		{"a token, too", &ci, []string{"Authorization", "Bearer " + tokenOfTest}, "token operator"},
		{"a wrong token, too", &ci, []string{"Authorization", "Bearer wrong"}, "401"},
		{"a header of no proxy", nil, []string{"X-Forwarded-User", "ci"}, "401"},
	} {
		got := d.who(tt.cert, tt.headers...)
		if prefix, _, hashed := strings.Cut(tt.want, "eeeeeeee"); hashed && strings.HasPrefix(got, prefix) && strings.HasSuffix(got, " viewer") && len(got) == len(tt.want) {
			continue
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if err := os.Rename(foreign.file, clients.file); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(slowtest.Limit(10 * time.Second)); d.who(&strange) != "cert-ci submitter"; {
		if time.Now().After(end) {
			t.Fatal("the authorities are not read again")
		}
	}
	if got := d.who(&ci); got != "no connection" {
		t.Errorf("of an authority that was removed: %s", got)
	}
}

// A proxy names users by a header. What anyone else sends in it counts for nothing.
func TestProxyHeader(t *testing.T) {
	t.Parallel()
	const header = "X-Forwarded-User"
	settings := func(from string) cli.ServeConfig {
		return cli.ServeConfig{HTTPProxyHeader: header, HTTPProxyFrom: []string{from}, HTTPClients: []string{"root=operator", "*=viewer"}}
	}
	behind := openDoor(t, settings("127.0.0.0/8"))
	for name, tt := range map[string]struct {
		headers []string
		want    string
	}{
		"a name with a role":  {[]string{header, "root"}, "proxy-root operator"},
		"another name":        {[]string{header, "ann"}, "proxy-ann viewer"},
		"no name":             {nil, "401"},
		"an empty name":       {[]string{header, ""}, "401"},
		"a star":              {[]string{header, "*"}, "401"},
		"two names":           {[]string{header, "ann", header, "root"}, "401"},
		"a list":              {[]string{header, "ann,root"}, "401"},
		"no ASCII":            {[]string{header, "ann\xff"}, "401"},
		"long":                {[]string{header, strings.Repeat("a", 101)}, "401"},
		"a token":             {[]string{header, "ann", "Authorization", "Bearer " + tokenOfTest}, "token operator"},
		"a wrong token":       {[]string{header, "root", "Authorization", "Bearer wrong"}, "401"},
		"another header":      {[]string{"X-Forwarded-Users", "root"}, "401"},
		"an underscore in it": {[]string{"X_Forwarded_User", "root"}, "401"},
	} {
		if got := behind.who(nil, tt.headers...); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	elsewhere := openDoor(t, settings("192.0.2.7"))
	if got := elsewhere.who(nil, header, "root"); got != "401" {
		t.Errorf("from another address: %s", got)
	}
}

// Settings that would let in too many, or no one, are refused.
func TestIdentitiesAreChecked(t *testing.T) {
	t.Parallel()
	for says, c := range map[string]cli.ServeConfig{
		"one is missing":         {HTTPProxyHeader: "X-User", HTTPClients: []string{"*=viewer"}},
		"--http-proxy-from":      {HTTPProxyHeader: "X-User", HTTPProxyFrom: []string{"proxy.example.com"}, HTTPClients: []string{"*=viewer"}},
		"has another meaning":    {HTTPProxyHeader: "authorization", HTTPProxyFrom: []string{"::1"}, HTTPClients: []string{"*=viewer"}},
		"identifies anyone":      {HTTPProxyHeader: "X-User", HTTPProxyFrom: []string{"::1"}},
		`"worker" is not a role`: {HTTPClients: []string{"a=worker"}},
		"is not NAME=ROLE":       {HTTPClients: []string{"a"}},
		"the name is to be":      {HTTPClients: []string{"a b=viewer"}},
		"has a role already":     {HTTPClients: []string{"a=viewer", "a=operator"}},
		"without it neither":     {HTTPTLSClientCA: "ca.pem"},
	} {
		if _, err := identify(c, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %s", c, err, says)
		}
	}
	if word("Ann.O") == word("ann-o") || word("Ann.O") == word("ann.o") || jobs.CheckToken("name", "cert-"+word(strings.Repeat("x", 100))) != nil || jobs.CheckToken("name", "cert-"+word("...")) != nil {
		t.Error("names become the same, or no words")
	}
}
