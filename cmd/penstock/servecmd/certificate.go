package servecmd

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/pool"
)

// lookAgain is how often new connections look whether the files of a certificate have
// changed.
const lookAgain = time.Second

// reloadedTLS returns a configuration with the certificate of two files (PEM), and with the
// authorities of clients in a third one, if it is named. They are read again when they have
// changed. Files that cannot be read then, as while one of them is being replaced, leave
// everything as it was.
func reloadedTLS(cert, key, clients string) (*tls.Config, error) {
	c := &certificate{cert: cert, key: key, clients: clients}
	if err := c.load(); err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current().pair, nil }}
	if clients != "" {
		cfg.ClientAuth = tls.VerifyClientCertIfGiven // others have tokens
		// A session that is resumed would have the authorities of its beginning.
		cfg.SessionTicketsDisabled = true
		base := cfg.Clone()
		cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := base.Clone()
			now.ClientCAs = c.current().authorities
			return now, nil
		}
	}
	return cfg, nil
}

type certificate struct {
	cert, key, clients string // files; clients may be none

	mu     sync.Mutex
	loaded loaded
	as     []os.FileInfo // the files as they were
	looked time.Time
}

// loaded is what the files had.
type loaded struct {
	pair        *tls.Certificate
	authorities *x509.CertPool // of clients
}

func (c *certificate) load() error {
	files := []string{c.cert, c.key}
	if c.clients != "" {
		files = append(files, c.clients)
	}
	var as []os.FileInfo
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		as = append(as, info)
	}
	if slices.EqualFunc(as, c.as, sameFile) {
		return nil
	}
	pair, err := pool.KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	next := loaded{pair: &pair}
	if c.clients != "" {
		if next.authorities, err = pool.Authorities(c.clients); err != nil {
			return err
		}
	}
	c.loaded, c.as = next, as
	return nil
}

// sameFile reports whether a file has not changed. One that replaces another one may have
// been written in the same tick of the clock.
func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func (c *certificate) current() loaded {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) >= lookAgain {
		c.looked = time.Now()
		_ = c.load() // everything stays as it was
	}
	return c.loaded
}
