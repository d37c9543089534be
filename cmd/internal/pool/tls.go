package pool

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
)

// serverTLS is how the embedded broker listens; nil without TLS.
func serverTLS(shell cli.Shell) (*tls.Config, error) {
	c := shell.Config.Serve
	if c.TLSCert == "" && c.TLSKey == "" {
		if c.TLSClientCA != "" {
			return nil, cli.Usage("", "--tls-client-ca needs --tls-cert and --tls-key")
		}
		return nil, nil
	}
	pair, err := KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, cli.Usage("use both, as PEM", "--tls-cert, --tls-key: %w", err)
	}
	if until := pair.Leaf.NotAfter; time.Now().After(until) {
		return nil, cli.Usage("renew it", "--tls-cert %s: the certificate has expired on %s", c.TLSCert, until.Format(time.RFC3339))
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if c.TLSClientCA != "" {
		if cfg.ClientCAs, err = Authorities(c.TLSClientCA); err != nil {
			return nil, cli.Usage("", "--tls-client-ca: %w", err)
		}
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return cfg, nil
}

// KeyPair reads a certificate and its key.
func KeyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := input.ReadFile(certFile, input.MaxFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := input.ReadFile(keyFile, input.MaxFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// Authorities reads certificates of authorities (PEM).
func Authorities(file string) (*x509.CertPool, error) {
	data, err := input.ReadFile(file, 16*input.MaxFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return pool, nil
}

// clientTLS returns the options of a connection to a broker with TLS. The certificate
// of the embedded broker of our own directory is known: then exactly that one is
// accepted, whatever authority issued it.
func clientTLS(shell cli.Shell, known []byte) ([]nats.Option, error) {
	cfg, err := clientTLSConfig(shell, known)
	if cfg == nil || err != nil {
		return nil, err
	}
	return []nats.Option{nats.Secure(cfg)}, nil
}

// clientTLSConfig is the configuration of the settings; nil without any.
func clientTLSConfig(shell cli.Shell, known []byte) (*tls.Config, error) {
	if shell.Config.TLSCA == "" && shell.Config.TLSClientCert == "" && shell.Config.TLSClientKey == "" && len(known) == 0 {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if shell.Config.TLSClientCert != "" || shell.Config.TLSClientKey != "" {
		pair, err := KeyPair(shell.Config.TLSClientCert, shell.Config.TLSClientKey)
		if err != nil {
			return nil, cli.Usage("use both, as PEM", "--tls-client-cert, --tls-client-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	switch {
	case shell.Config.TLSCA != "":
		if cfg.RootCAs, err = Authorities(shell.Config.TLSCA); err != nil {
			return nil, cli.Usage("", "--tls-ca: %w", err)
		}
	case len(known) > 0:
		cfg.InsecureSkipVerify = true // what follows verifies more
		cfg.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || string(state.PeerCertificates[0].Raw) != string(known) {
				return errors.New("the server's certificate has changed since it started")
			}
			return nil
		}
	}
	return cfg, nil
}

// insecure says what is wrong between a client and a server with TLS, and what
// to do; empty for other errors.
func insecure(err error) (hint string) {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, misnamed := errors.AsType[x509.HostnameError](err)
	invalid, bad := errors.AsType[x509.CertificateInvalidError](err)
	told, ok := errors.AsType[*net.OpError](err)
	switch {
	case unknown:
		return "name the authority of the server's certificate with --tls-ca"
	case misnamed:
		return "connect to a name in the server's certificate"
	case bad && invalid.Reason == x509.Expired:
		return "the server's certificate is not valid now: renew it, or set the clock of this host"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the server has no TLS: on this host write http://, and on others let it have a certificate"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the server has no TLS: leave out --tls-ca, or start it with --tls-cert"
	case ok && told.Op == "remote error", errors.Is(err, nats.ErrTLS):
		return "the server requires a client certificate: --tls-client-cert and --tls-client-key"
	}
	return ""
}
