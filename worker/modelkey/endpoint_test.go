package modelkey_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/modelkey"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token  = "token-of-the-jail"
	ask    = `{"model":"claude-opus-5","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"<hello>"}]}`
	begins = `{"type":"message_start","message":{"model":"claude-opus-5","usage":{"input_tokens":100,"output_tokens":1}}}`
	says   = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`
	ends   = `{"type":"message_delta","delta":{},"usage":{"output_tokens":50}}`
	stops  = `{"type":"message_stop"}`
)

// A rig is a gate with keys of settings, and a session of it.
type rig struct {
	*testing.T
	dir, url string
	session  *gate.Session
}

func (r *rig) file(name, text string) string {
	r.Helper()
	file := filepath.Join(r.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
	return file
}

func newRig(t *testing.T) *rig { return &rig{T: t, dir: t.TempDir()} }

// serve opens the keys of an API.
func (r *rig) serve(api string, keys modelkey.Keys) {
	r.Helper()
	if err := keys.Check(); err != nil {
		r.Fatal(err)
	}
	opened, err := keys.Open(api, "", nil)
	if err != nil {
		r.Fatal(err)
	}
	g, err := gate.New(gate.Config{API: api, Keys: opened, Govern: true})
	if err != nil {
		r.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.Fatal(err)
	}
	r.url, r.session = "http://"+l.Addr().String(), gate.NewSession("s", token, gate.Limits{})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, r.session, l) }()
	r.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			r.Error(err)
		}
		if err := g.Close(); err != nil {
			r.Error(err)
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
}

func (r *rig) post(path, body string) (int, string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Anthropic-Beta", "one-2026,two-2026")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		r.Error(err)
	}
	return res.StatusCode, string(out)
}

func stub(t *testing.T, f http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s
}

// signed computes the signature of a request anew, by the description of Signature Version 4.
func signed(r *http.Request, body []byte, secret string) bool {
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ", ") {
		name, value, _ := strings.Cut(part, "=")
		fields[name] = value
	}
	id, scope, _ := strings.Cut(fields["Credential"], "/")
	parts := strings.Split(scope, "/")
	if scheme != "AWS4-HMAC-SHA256" || id != "AKIDEXAMPLE" || len(parts) != 4 || parts[1] != "eu-west-1" || parts[2] != "bedrock" {
		return false
	}
	sum := sha256.Sum256(body)
	canonical := r.Method + "\n" + strings.ReplaceAll(r.URL.EscapedPath(), "%", "%25") + "\n" + r.URL.RawQuery + "\n"
	for name := range strings.SplitSeq(fields["SignedHeaders"], ";") {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		canonical += name + ":" + strings.TrimSpace(value) + "\n"
	}
	canonical += "\n" + fields["SignedHeaders"] + "\n" + hex.EncodeToString(sum[:])
	hashed := sha256.Sum256([]byte(canonical))
	text := "AWS4-HMAC-SHA256\n" + r.Header.Get("X-Amz-Date") + "\n" + scope + "\n" + hex.EncodeToString(hashed[:])
	key := []byte("AWS4" + secret)
	for _, part := range append(parts, text) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key) == fields["Signature"] && strings.Contains(fields["SignedHeaders"], "host")
}

// frame is an event of Amazon's.
func frame(t testing.TB, header, name, payload string) []byte {
	var out bytes.Buffer
	m := eventstream.Message{Payload: []byte(payload)}
	m.Headers.Set(header, eventstream.StringValue(name))
	if err := eventstream.NewEncoder().Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func chunk(t testing.TB, event string) []byte {
	return frame(t, ":event-type", "chunk", `{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(event))+`"}`)
}

// A session of Anthropic's API goes to Amazon Bedrock: the request is signed, the stream is unpacked and counted, and errors
// are Anthropic's. A credential that Amazon refuses has the session go on with another one.
func TestBedrock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var refuse atomic.Int32
	amazon := stub(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if !signed(req, body, "aws-secret-0123456789") || refuse.Load() == 1 {
			w.Header().Set("X-Amzn-ErrorType", "InvalidSignatureException:http://internal.amazon.com/")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"message":"The request signature we calculated does not match"}`)
			return
		}
		var said map[string]any
		if err := json.Unmarshal(body, &said); err != nil || said["anthropic_version"] != "bedrock-2023-05-31" || said["model"] != nil || said["stream"] != nil ||
			fmt.Sprint(said["anthropic_beta"]) != "[one-2026 two-2026]" || !strings.Contains(string(body), "<hello>") {
			t.Errorf("the body is %s", body)
		}
		if want := "/model/eu.anthropic.claude-opus-5-v1%3A0/invoke-with-response-stream"; req.URL.EscapedPath() != want {
			t.Errorf("the path is %s", req.URL.EscapedPath())
		}
		w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
		for _, event := range []string{begins, says, ends, stops} {
			_, _ = w.Write(chunk(t, event))
			if refuse.Load() == 2 {
				_, _ = w.Write(frame(t, ":exception-type", "throttlingException", `{"message":"Too many tokens"}`))
				return
			}
		}
	})
	direct := stub(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{begins, says, ends, stops} {
			_, _ = fmt.Fprintf(w, "event: x\ndata: %s\n\n", event)
		}
	})
	r.serve("anthropic", modelkey.Keys{
		"amazon": {
			API: "anthropic", Via: "bedrock", URL: amazon.URL, Region: "eu-west-1", Weight: 1000, Models: map[string]string{"claude-opus-5*": "eu.anthropic.claude-opus-5-v1:0"},
			SecretFile: r.file("aws", "[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = aws-secret-0123456789\n"),
		},
		"direct": {API: "anthropic", URL: direct.URL, SecretFile: r.file("direct", "sk-direct-0123456789")},
	})
	status, body := r.post("/v1/messages", ask)
	if want := "event: content_block_delta\ndata: " + says + "\n\n"; status != 200 || !strings.Contains(body, want) || !strings.HasSuffix(body, stops+"\n\n") {
		t.Errorf("got %d %s", status, body)
	}
	if m := r.session.Meter(); m.Usage.Total() != 150 || m.Unpriced != 0 || m.CostUSD == 0 {
		t.Errorf("counted %+v", m)
	}
	refuse.Store(2)
	if status, body := r.post("/v1/messages", ask); status != 200 || !strings.Contains(body, `"type":"rate_limit_error"`) {
		t.Errorf("a stream that is ended got %d %s", status, body)
	}
	if status, _ := r.post("/v1/messages/count_tokens", `{"model":"claude-opus-5","messages":[]}`); status != 404 {
		t.Errorf("a call that Bedrock does not have: %d", status)
	}
	refuse.Store(1)
	if status, body := r.post("/v1/messages", ask); status != 200 || !strings.Contains(body, stops) {
		t.Errorf("with a signature that is refused: %d %s", status, body)
	}
	if f := r.session.Failing(); f.Row != 0 {
		t.Errorf("failing %+v", f)
	}
}

// A session goes to Google Vertex with a token that is made with a service account: one for all calls until it
// expires, also where many wait for it. An account that is refused has jobs wait as for a refused key.
func TestVertex(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	var tokens atomic.Int32
	var refuse atomic.Bool
	const access = "ya29.token-of-google-0123456789"
	google := stub(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if req.URL.Path == "/token" {
			tokens.Add(1)
			values := strings.Split(strings.TrimPrefix(string(body), "assertion="), "&")
			parts := strings.Split(values[0], ".")
			w.Header().Set("Content-Type", "application/json")
			if refuse.Load() || len(parts) != 3 || !verified(parts, &private.PublicKey) {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`)
				return
			}
			_, _ = io.WriteString(w, `{"access_token":"`+access+`","expires_in":3600,"token_type":"Bearer"}`)
			return
		}
		if want := "/v1/projects/team-1/locations/global/publishers/anthropic/models/claude-opus-5%4020260901:streamRawPredict"; req.URL.EscapedPath() != want || req.Header.Get("Authorization") != "Bearer "+access {
			t.Errorf("got %s with %q", req.URL.EscapedPath(), req.Header.Get("Authorization"))
		}
		if !strings.Contains(string(body), `"anthropic_version":"vertex-2023-10-16"`) || strings.Contains(string(body), `"model"`) || req.Header.Get("Anthropic-Beta") == "" {
			t.Errorf("the body is %s", body)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{begins, strings.Replace(says, "hi", "hi "+access, 1), ends, stops} {
			_, _ = fmt.Fprintf(w, "event: x\ndata: %s\n\n", event)
		}
	})
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "worker@team-1.iam.gserviceaccount.com", "token_uri": google.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	keys := modelkey.Keys{"cloud": {
		API: "anthropic", Via: "vertex", URL: google.URL, Region: "global", Project: "team-1", SecretFile: r.file("account", string(account)),
		Models: map[string]string{"claude-opus-5": "claude-opus-5@20260901"},
	}}
	r.serve("anthropic", keys)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if status, body := r.post("/v1/messages", ask); status != 200 || !strings.Contains(body, stops) || strings.Contains(body, access) {
				t.Errorf("got %d %s", status, body)
			}
		})
	}
	calls.Wait()
	if tokens.Load() != 1 || r.session.Meter().Usage.Total() != 8*150 {
		t.Errorf("%d tokens were made, %+v", tokens.Load(), r.session.Meter())
	}
	refuse.Store(true)
	other := newRig(t)
	other.serve("anthropic", keys)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, other.url+"/v1/messages", strings.NewReader(ask))
		if err == nil {
			req.Header.Set("X-Api-Key", token)
			if res, err := http.DefaultClient.Do(req); err == nil {
				_ = res.Body.Close()
			}
		}
	}()
	<-other.session.Held()
	if h := other.session.Hold(); h.Key != "cloud" || !strings.Contains(h.Refused, "invalid_grant") || strings.Contains(h.Error(), "PRIVATE") {
		t.Errorf("held: %v", h)
	}
}

// verified checks a token that is signed with RS256.
func verified(parts []string, key *rsa.PublicKey) bool {
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	claims, other := base64.RawURLEncoding.DecodeString(parts[1])
	return err == nil && other == nil && rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil &&
		strings.Contains(string(claims), "worker@team-1") && strings.Contains(string(claims), "cloud-platform")
}

// Azure has its own header and paths; models are deployments.
func TestAzure(t *testing.T) {
	t.Parallel()
	for version, paths := range map[string][2]string{
		"":           {"/openai/v1/responses", "/openai/v1/chat/completions"},
		"2025-04-01": {"/openai/responses?api-version=2025-04-01", "/openai/deployments/our-gpt/chat/completions?api-version=2025-04-01"},
	} {
		r := newRig(t)
		var seen []string
		azure := stub(t, func(w http.ResponseWriter, req *http.Request) {
			body, _ := io.ReadAll(req.Body)
			seen = append(seen, req.URL.RequestURI())
			if req.Header.Get("Api-Key") != "azure-0123456789" || req.Header.Get("Authorization") != "" || !strings.Contains(string(body), `"model":"our-gpt"`) {
				t.Errorf("got %v %s", req.Header, body)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"object":"`+map[bool]string{true: "response", false: "chat.completion"}[strings.Contains(req.URL.Path, "responses")]+`","model":"gpt-5.4","usage":{"input_tokens":700,"output_tokens":300,"prompt_tokens":700,"completion_tokens":300,"total_tokens":1000}}`)
		})
		r.serve("openai", modelkey.Keys{"azure": {
			API: "openai", Via: "azure", URL: azure.URL, Version: version, SecretFile: r.file("key", "azure-0123456789"), Models: map[string]string{"gpt-*": "our-gpt"},
		}})
		for i, path := range []string{"/v1/responses", "/v1/chat/completions"} {
			if status, body := r.post(path, `{"model":"gpt-5.4","input":"x"}`); status != 200 || seen[i] != paths[i] {
				t.Errorf("got %d %s at %v, want %s", status, body, seen, paths[i])
			}
		}
		if m := r.session.Meter(); m.Usage.Total() != 2000 || m.Unpriced != 0 {
			t.Errorf("counted %+v", m)
		}
	}
}

// A gateway gets the key where it wants it, more headers, its own names of models, and a certificate of its
// client. What it sends back of that is blanked.
func TestAGateway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cert, key, pool := certificate(t)
	gateway := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if req.Header.Get("X-Gateway-Key") != "gateway-0123456789" || req.Header.Get("X-Api-Key") != "" || req.Header.Get("X-Team") != "blue" || req.Header.Get("X-Second") != "second-0123456789" ||
			!strings.Contains(string(body), `"model":"team/opus"`) || req.URL.Path != "/llm/v1/messages" || len(req.TLS.PeerCertificates) != 1 {
			t.Errorf("got %s %v %s", req.URL, req.Header, body)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"model":"team/opus","type":"message","content":[{"type":"text","text":"gateway-0123456789 second-0123456789"}],"usage":{"input_tokens":700,"output_tokens":300}}`)
	}))
	gateway.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	gateway.StartTLS()
	t.Cleanup(gateway.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: gateway.Certificate().Raw})
	r.serve("anthropic", modelkey.Keys{"gateway": {
		API: "anthropic", URL: gateway.URL + "/llm/", Header: "X-Gateway-Key", SecretFile: r.file("key", "gateway-0123456789"),
		Headers: map[string]string{"x-team": "blue", "X-Second": "@" + r.file("second", "second-0123456789\n")}, Models: map[string]string{"claude-opus-5": "team/opus"},
		CA: r.file("ca.pem", string(ca)), Cert: r.file("cert.pem", cert), CertKey: r.file("key.pem", key),
	}})
	status, body := r.post("/v1/messages", ask)
	if status != 200 || strings.Contains(body, "0123456789") || !strings.Contains(body, "***") {
		t.Errorf("got %d %s", status, body)
	}
	if m := r.session.Meter(); m.Usage.Total() != 1000 || m.Unpriced != 0 {
		t.Errorf("counted %+v", m)
	}
}

func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)})), pool
}
