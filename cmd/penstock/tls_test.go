package main

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/dispatcher/natsd"
)

// keyPair writes an ed25519 key, and its public half beside it.
func (f *fixture) keyPair(dir, name string) (private string) {
	f.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	f.must(err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	f.must(err)
	private = f.pem(filepath.Join(dir, name+".key"), "PRIVATE KEY", der)
	der, err = x509.MarshalPKIXPublicKey(public)
	f.must(err)
	f.pem(filepath.Join(dir, name+".pub"), "PUBLIC KEY", der)
	return private
}

func (f *fixture) pem(path, kind string, der []byte) string {
	f.Helper()
	f.must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// An authority issues certificates for 127.0.0.1.
type authority struct {
	f    *fixture
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func (f *fixture) authority(name string) *authority {
	f.Helper()
	a := &authority{f: f, dir: filepath.Join(f.TempDir(), name)}
	f.must(os.Mkdir(a.dir, 0o700))
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	f.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	f.must(err)
	a.cert, err = x509.ParseCertificate(der)
	f.must(err)
	a.file = f.pem(filepath.Join(a.dir, "ca.pem"), "CERTIFICATE", der)
	return a
}

// issue writes a certificate and its key.
func (a *authority) issue(name string, until time.Time) (cert, key string) {
	a.f.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.f.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	a.f.must(err)
	cert = a.f.pem(filepath.Join(a.dir, name+".pem"), "CERTIFICATE", der)
	der, err = x509.MarshalPKCS8PrivateKey(private)
	a.f.must(err)
	return cert, a.f.pem(filepath.Join(a.dir, name+".key"), "PRIVATE KEY", der)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ca, stranger := f.authority("ca"), f.authority("stranger")
	cert, key := ca.issue("server", time.Now().Add(time.Hour))

	if _, code, said := f.try("serve", "--listen", "0.0.0.0:0", "--admin", ""); code != 2 || !strings.Contains(said, "--tls-cert") {
		t.Errorf("listen on all addresses without TLS: %d, %s", code, said)
	}
	old, oldKey := ca.issue("old", time.Now().Add(-time.Minute))
	if _, code, said := f.try("serve", "--admin", "", "--tls-cert", old, "--tls-key", oldKey); code != 2 || !strings.Contains(said, "has expired") {
		t.Errorf("serve with an expired certificate: %d, %s", code, said)
	}

	f.start("serving", "serve", "--listen", "0.0.0.0:0", "--admin", "", "--tls-cert", cert, "--tls-key", key)
	endpoint, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(endpoint.URL, "tls://"))
	f.must(err)
	f.run("job", "ls") // of the same data directory: the certificate is known
	creds := filepath.Join(t.TempDir(), "viewer.creds")
	f.run("nats", "credentials", "viewer", "--file", creds)
	at := func(host string, flags ...string) (int, string) {
		_, code, said := f.try(flagged([]string{"job", "ls", "--server", "nats://" + net.JoinHostPort(host, port), "--creds", creds}, flags)...)
		return code, said
	}
	for _, c := range []struct {
		what  string
		host  string
		flags []string
		code  int
		hint  string
	}{
		{"with its authority", "127.0.0.1", []string{"--tls-ca", ca.file}, 0, ""},
		{"with another authority", "127.0.0.1", []string{"--tls-ca", stranger.file}, 7, "--tls-ca"},
		{"with none", "127.0.0.1", nil, 7, "--tls-ca"},
		{"by another name", "localhost", []string{"--tls-ca", ca.file}, 7, "name in the server's certificate"},
		{"with a file that has none", "127.0.0.1", []string{"--tls-ca", creds}, 2, "--tls-ca"},
	} {
		if code, said := at(c.host, c.flags...); code != c.code || !strings.Contains(said, c.hint) {
			t.Errorf("%s: %d, %s; want %d and %q", c.what, code, said, c.code, c.hint)
		}
	}
	f.spoken(net.JoinHostPort("127.0.0.1", port))
}

// spoken wants that a client without TLS is told nothing but that.
func (f *fixture) spoken(address string) {
	f.Helper()
	c, err := net.Dial("tcp", address)
	f.must(err)
	defer c.Close()
	f.must(c.SetDeadline(time.Now().Add(30 * time.Second)))
	_, err = c.Write([]byte("CONNECT {\"verbose\":true}\r\nPING\r\n"))
	f.must(err)
	said := make([]byte, 64<<10)
	var all string
	for {
		n, err := c.Read(said)
		all += string(said[:n])
		if err != nil {
			break
		}
	}
	if strings.Contains(all, "PONG") || strings.Contains(all, "+OK") {
		f.Errorf("the server speaks without TLS: %s", all)
	}
}

// A server that requires certificates refuses clients without one, even with the right
// password.
func TestTLSOfClients(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ca, stranger := f.authority("ca"), f.authority("stranger")
	cert, key := ca.issue("server", time.Now().Add(time.Hour))
	f.start("serving", "serve", "--listen", "127.0.0.1:0", "--admin", "", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca.file)
	endpoint, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	mine, mineKey := ca.issue("me", time.Now().Add(time.Hour))
	forged, forgedKey := stranger.issue("me", time.Now().Add(time.Hour))
	expired, expiredKey := ca.issue("late", time.Now().Add(-time.Minute))
	f.run("job", "ls", "--tls-client-cert", mine, "--tls-client-key", mineKey)
	for what, flags := range map[string][]string{
		"without":        nil,
		"a stranger's":   {"--tls-client-cert", forged, "--tls-client-key", forgedKey},
		"an expired one": {"--tls-client-cert", expired, "--tls-client-key", expiredKey},
	} {
		if _, code, said := f.try(flagged([]string{"job", "ls"}, flags)...); code != 7 || !strings.Contains(said, "--tls-client-cert") {
			t.Errorf("%s: %d, %s", what, code, said)
		}
	}
	if nc, err := nats.Connect(endpoint.URL, append(endpoint.Options(), nats.RootCAs(ca.file))...); err == nil {
		nc.Close()
		t.Error("connected without a certificate")
	}
}

// A client that wants TLS does not speak to a server without.
func TestTLSIsNotGivenUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	endpoint, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	_, code, said := f.try("job", "ls", "--server", endpoint.URL, "--tls-ca", f.authority("ca").file)
	if code != 7 || !strings.Contains(said, "no TLS") {
		t.Errorf("%d, %s; want that the server has no TLS", code, said)
	}
}
