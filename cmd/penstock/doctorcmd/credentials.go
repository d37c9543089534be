package doctorcmd

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/pool"
)

// soon is how long before its end a credential is worth a word.
const soon = 14 * 24 * time.Hour

// An ending is when something is accepted no more.
type ending struct {
	what string
	at   time.Time
}

// judge says of endings which have passed, and which are near.
func judge(check string, all []ending, fix string) Finding {
	f := Finding{Check: check, Status: "ok", Detail: "none expires soon"}
	slices.SortFunc(all, func(a, b ending) int { return a.at.Compare(b.at) })
	var said []string
	for _, e := range all {
		left := time.Until(e.at)
		switch {
		case left <= 0:
			f.Status = "fail"
			said = append(said, fmt.Sprintf("%s expired on %s", e.what, e.at.UTC().Format(time.DateOnly)))
		case left < soon:
			if f.Status == "ok" {
				f.Status = "weak"
			}
			said = append(said, fmt.Sprintf("%s expires in %v", e.what, left.Round(time.Minute)))
		}
	}
	if len(said) > 0 {
		f.Detail, f.Price, f.Fix = strings.Join(said, "; "), "who uses it is refused from then on", fix
	}
	return f
}

// checkCredentials looks at the files of the settings, and at what the broker has shown.
func (d poolDoctor) checkCredentials(p *pool.Pool) []Finding {
	c := d.shell.Config
	var all []ending
	var broken []string
	for _, file := range []string{c.TLSClientCert, c.TLSCA, c.Serve.TLSCert, c.Serve.TLSClientCA, c.Serve.HTTPTLSCert, c.Serve.HTTPTLSClientCA} {
		if file == "" {
			continue
		}
		ends, err := certificateEnds(file)
		if err != nil {
			broken = append(broken, err.Error())
			continue
		}
		all = append(all, ending{file, ends})
	}
	if c.Creds != "" {
		if e, ok := credentialEnds(c.Creds); ok {
			all = append(all, e)
		}
	}
	if state, err := p.Conn.TLSConnectionState(); err == nil && len(state.PeerCertificates) > 0 {
		all = append(all, ending{"the broker's certificate", state.PeerCertificates[0].NotAfter})
	}
	f := judge("credentials", all, "renew it; files are read again on SIGHUP, certificates of HTTP by themselves")
	if len(broken) > 0 {
		f.Status, f.Detail, f.Fix = "fail", strings.Join(broken, "; "), "correct the settings"
	}
	return []Finding{f}
}

// certificateEnds is when the first of a file's certificates expires.
func certificateEnds(file string) (first time.Time, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return first, err
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return first, fmt.Errorf("%s: %w", file, err)
		}
		if first.IsZero() || cert.NotAfter.Before(first) {
			first = cert.NotAfter
		}
	}
	if first.IsZero() {
		return first, fmt.Errorf("%s has no certificate", file)
	}
	return first, nil
}

// credentialEnds is when the JWT of a credentials file expires. Credentials that penstock
// makes have none: they are accepted until they are revoked.
func credentialEnds(file string) (e ending, ok bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return e, false // the connection has read it, or has said why not
	}
	_, token, _ := strings.Cut(string(data), "BEGIN NATS USER JWT-----\n")
	parts := strings.Split(strings.TrimSpace(token[:max(strings.IndexByte(token, '\n'), 0)]), ".")
	if len(parts) != 3 {
		return e, false
	}
	var claims struct {
		Expires int64 `json:"exp"`
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(body, &claims) != nil || claims.Expires == 0 {
		return e, false // the broker decides about it
	}
	return ending{file, time.Unix(claims.Expires, 0)}, true
}

// checkTokens looks at the tokens of HTTP.
func (poolDoctor) checkTokens(ctx context.Context, p *pool.Pool) (Finding, error) {
	var all []ending
	for t, err := range p.Client.Tokens().List(ctx) {
		if err != nil {
			return Finding{Check: "tokens"}, err
		}
		if t.Expires != nil {
			all = append(all, ending{"token " + t.Name, *t.Expires})
		}
	}
	f := judge("tokens", all, "penstock token add, then token rm; tokens that nothing uses can go")
	if f.Status == "fail" {
		f.Status = "weak" // one that has expired is refused alone
	}
	return f, nil
}
