package modelkey

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/endpoint"
)

// tokenTime is how long a request for a token may take.
const tokenTime = 30 * time.Second

var (
	place  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9-]{1,64}$`) })
	header = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`) })
)

// checkEndpoint reports what is wrong with the settings of an endpoint.
func (k Key) checkEndpoint() error {
	apis := map[string][]string{"": APIs, endpoint.Azure: {"openai"}, endpoint.Bedrock: {"anthropic"}, endpoint.Vertex: {"anthropic", "google"}, endpoint.Subscription: {"anthropic", "openai"}}
	allowed, known := apis[k.Via]
	cloud := k.Via == endpoint.Bedrock || k.Via == endpoint.Vertex
	switch {
	case !known:
		return fmt.Errorf("via: %q is not azure, bedrock, vertex or subscription", k.Via)
	case !slices.Contains(allowed, k.API):
		return fmt.Errorf("via: %s is for api %s, not %s", k.Via, strings.Join(allowed, " or "), k.API)
	case cloud && !place().MatchString(k.Region):
		return fmt.Errorf("region: %q is no region; via %s needs one", k.Region, k.Via)
	case !cloud && k.Region != "":
		return errors.New("region: is for via bedrock or vertex")
	case k.Via == endpoint.Vertex && !place().MatchString(k.Project):
		return fmt.Errorf("project: %q is no project; via vertex needs one", k.Project)
	case k.Via != endpoint.Vertex && k.Project != "":
		return errors.New("project: is for via vertex")
	case k.Via != endpoint.Azure && k.Version != "":
		return errors.New("api_version: is for via azure")
	case k.Via == endpoint.Azure && k.URL == "":
		return errors.New("url: via azure needs it, as https://NAME.openai.azure.com")
	case k.logsIn() && k.SecretFile == "":
		return errors.New("secret_file: via subscription needs it for openai, since tokens are renewed in it")
	case k.Tokens != "" && !k.logsIn():
		return errors.New("token_url: is for api openai via subscription")
	case k.Via != "" && k.Header != "", k.Header != "" && !header().MatchString(k.Header):
		return fmt.Errorf("header: %q is not the name of a header of a gateway", k.Header)
	case (k.Cert == "") != (k.CertKey == ""):
		return errors.New("tls_client_cert: needs tls_client_key, and the other way round")
	}
	for field, url := range map[string]string{"url": k.URL, "token_url": k.Tokens} {
		if _, err := endpoint.Base(url); url != "" && err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.Headers)) {
		file, isFile := strings.CutPrefix(k.Headers[name], "@")
		switch {
		case !header().MatchString(name):
			return fmt.Errorf("headers: %q is not the name of a header", name)
		case isFile && !filepath.IsAbs(file):
			return fmt.Errorf("headers.%s: %q is not an absolute path", name, file)
		case strings.ContainsAny(k.Headers[name], "\r\n\x00"):
			return fmt.Errorf("headers.%s: has more than one line", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.Models)) {
		if k.Models[name] == "" || len(k.Models[name]) > 512 {
			return fmt.Errorf("models.%s: names no model", name)
		}
	}
	return nil
}

// open reads the secrets of a key, and makes its endpoint.
func (k Key) open(key string, variables map[string]string) (gate.Credential, error) {
	secret, err := k.secret(key, variables)
	if err != nil {
		return gate.Credential{}, err
	}
	c := gate.Credential{Name: key, Key: gate.Key(secret), Weight: k.Weight, Queues: k.Queues, Place: k.Via + k.URL + k.Region}
	if c.TLS, err = k.tls(); err != nil {
		return c, err
	}
	if !k.elsewhere() {
		return c, nil
	}
	headers := map[string]string{}
	for name, value := range k.Headers {
		if file, isFile := strings.CutPrefix(value, "@"); isFile {
			if value, err = read(file); err == nil && strings.ContainsAny(value, "\r\n\x00") {
				err = fmt.Errorf("%s has more than one line", file)
			}
			if err != nil {
				return c, fmt.Errorf("headers.%s: %w", name, err)
			}
		}
		headers[http.CanonicalHeaderKey(name)] = value
	}
	cfg := endpoint.Config{
		API: k.API, Via: k.Via, URL: k.URL, Secret: secret, Header: k.Header, Headers: headers, Models: k.Models, Region: k.Region, Project: k.Project, Version: k.Version,
		TokenURL: k.Tokens, Client: tokenClient(c.TLS),
	}
	if k.logsIn() {
		cfg.File = k.SecretFile
	}
	if cfg.Via == "" {
		cfg = gate.Native(cfg)
	}
	if c.Endpoint, err = endpoint.New(cfg); err != nil {
		return c, fmt.Errorf("the endpoint or its secret: %w", err)
	}
	if k.logsIn() {
		c.Key = gate.Key(c.Endpoint.Account())
	}
	return c, nil
}

// tokenClient asks for tokens. It follows no redirect, with which a credential would go elsewhere.
func tokenClient(cfg *tls.Config) *http.Client {
	return &http.Client{
		Timeout: tokenTime, Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// elsewhere reports whether the calls go to another endpoint than those of the API's other keys.
func (k Key) elsewhere() bool {
	return k.Via != "" || k.URL != "" || k.Header != "" || len(k.Headers)+len(k.Models) > 0
}

// tls is that of the endpoint's connections; nil: the system's.
func (k Key) tls() (*tls.Config, error) {
	if k.CA == "" && k.Cert == "" {
		return nil, nil //nolint:nilnil // the zero value of the gate's field
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if k.CA != "" {
		pem, err := read(k.CA)
		if err != nil {
			return nil, fmt.Errorf("tls_ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(pem)) {
			return nil, fmt.Errorf("tls_ca: %s has no certificate in it", k.CA)
		}
	}
	if k.Cert != "" {
		pair, err := tls.LoadX509KeyPair(k.Cert, k.CertKey)
		if err != nil {
			return nil, fmt.Errorf("tls_client_cert: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
