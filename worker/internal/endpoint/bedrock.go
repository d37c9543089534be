package endpoint

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/penstock-run/penstock/worker/internal/modelapi"
)

// bedrock is the runtime of Amazon Bedrock, with the models of Anthropic.
type bedrock struct {
	Config
	signer *v4.Signer
	keys   aws.Credentials // none: the secret is a key of Bedrock's own
}

const (
	eventStream = "application/vnd.amazon.eventstream"
	maxEvent    = 16 << 20
	maxError    = 64 << 10
)

// newBedrock reads the secret: a key of Bedrock's own, or lines as in a credentials file of AWS.
func newBedrock(cfg Config) (*bedrock, error) {
	b := &bedrock{Config: cfg, signer: v4.NewSigner()}
	if !strings.ContainsAny(cfg.Secret, "=\n ") {
		return b, nil
	}
	for line := range strings.Lines(cfg.Secret) {
		name, value, _ := strings.Cut(line, "=")
		switch value = strings.TrimSpace(value); strings.TrimSpace(name) {
		case "aws_access_key_id":
			b.keys.AccessKeyID = value
		case "aws_secret_access_key":
			b.keys.SecretAccessKey = value
		case "aws_session_token":
			b.keys.SessionToken = value
		}
	}
	if !b.keys.HasKeys() {
		return nil, errors.New("is neither a key of Bedrock nor lines with aws_access_key_id and aws_secret_access_key")
	}
	return b, nil
}

func (b *bedrock) target(t *target) error {
	if t.Path != "/v1/messages" {
		return ErrUnknown
	}
	beta := t.Header.Get("Anthropic-Beta")
	err := t.change(func(body map[string]json.RawMessage) {
		t.streamed = string(body["stream"]) == "true"
		delete(body, "model")
		delete(body, "stream")
		delete(body, "anthropic_beta") // what the agent asks for is in its header, which the gate has read
		body["anthropic_version"] = encoded("bedrock-2023-05-31")
		if beta != "" {
			var names []string
			for name := range strings.SplitSeq(beta, ",") {
				names = append(names, strings.TrimSpace(name))
			}
			body["anthropic_beta"] = encoded(names)
		}
	})
	t.path, t.Query = "/model/"+escape(t.model)+"/invoke", ""
	t.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	if t.streamed {
		t.path += "-with-response-stream"
		t.Header.Set("Accept", eventStream)
	}
	return err
}

func (b *bedrock) authorize(r *http.Request, body []byte) error {
	if !b.keys.HasKeys() {
		r.Header.Set("Authorization", "Bearer "+b.Secret)
		return nil
	}
	r.Header.Del("Accept-Encoding") // it need not be signed, and none is sent without it
	sum := sha256.Sum256(body)
	return b.signer.SignHTTP(r.Context(), b.keys, r, hex.EncodeToString(sum[:]), "bedrock", b.Region, time.Now())
}

func (b *bedrock) secrets() []string {
	if !b.keys.HasKeys() {
		return []string{b.Secret}
	}
	all := []string{b.keys.SecretAccessKey}
	if b.keys.SessionToken != "" {
		all = append(all, b.keys.SessionToken)
	}
	return all
}

// answer makes an event stream of an answer in Amazon's own format, and Anthropic's error of one of theirs.
func (b *bedrock) answer(res *http.Response) {
	switch {
	case res.StatusCode >= 400:
		failed(res)
	case strings.HasPrefix(res.Header.Get("Content-Type"), eventStream):
		res.Header.Set("Content-Type", "text/event-stream")
		res.ContentLength = -1
		res.Body = &unpacked{from: res.Body, decoder: eventstream.NewDecoder()}
	}
}

// An unpacked reads the events within an event stream of Amazon.
type unpacked struct {
	from    io.ReadCloser
	decoder *eventstream.Decoder
	out     bytes.Buffer
	payload []byte
	err     error
}

func (u *unpacked) Read(p []byte) (int, error) {
	for u.out.Len() == 0 && u.err == nil {
		u.err = u.next()
	}
	if u.out.Len() > 0 {
		return u.out.Read(p)
	}
	return 0, u.err
}

func (u *unpacked) Close() error { return u.from.Close() }

func (u *unpacked) next() error {
	m, err := u.decoder.Decode(io.LimitReader(u.from, maxEvent), u.payload[:0])
	if err != nil {
		return err // io.EOF at the end
	}
	u.payload = m.Payload
	kind := ""
	if v := m.Headers.Get(":exception-type"); v != nil {
		kind = v.String()
	}
	if kind != "" {
		writeEvent(&u.out, "error", anthropicError(kind, m.Payload))
		return nil
	}
	var chunk struct {
		Bytes []byte `json:"bytes"`
	}
	var event struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(m.Payload, &chunk); err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	if json.Unmarshal(chunk.Bytes, &event) == nil && event.Type != "" {
		writeEvent(&u.out, event.Type, chunk.Bytes)
	}
	return nil
}

// writeEvent writes an event as it is in an event stream of HTTP.
func writeEvent(out *bytes.Buffer, kind string, data []byte) {
	var line bytes.Buffer
	if json.Compact(&line, data) != nil || strings.ContainsAny(kind, "\r\n") {
		return
	}
	fmt.Fprintf(out, "event: %s\ndata: %s\n\n", kind, line.Bytes())
}

// failed makes the answer with an error one of Anthropic's.
func failed(res *http.Response) {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxError))
	if err != nil {
		return // the reader of the rest meets it, too
	}
	_ = res.Body.Close() // it was read
	kind, _, _ := strings.Cut(res.Header.Get("X-Amzn-Errortype"), ":")
	body = anthropicError(kind, body)
	res.Header.Set("Content-Type", "application/json")
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// kinds are Anthropic's words for Amazon's.
var kinds = map[string]string{
	"UnrecognizedClientException": "authentication_error", "InvalidSignatureException": "authentication_error", "ExpiredTokenException": "authentication_error",
	"MissingAuthenticationTokenException": "authentication_error", "IncompleteSignatureException": "authentication_error", "InvalidClientTokenId": "authentication_error",
	"AccessDeniedException": "permission_error", "ResourceNotFoundException": "not_found_error", "ValidationException": "invalid_request_error",
	"ThrottlingException": "rate_limit_error", "ServiceQuotaExceededException": "rate_limit_error",
	"ServiceUnavailableException": "overloaded_error", "ModelNotReadyException": "overloaded_error",
}

// anthropicError is an error of Amazon as Anthropic would tell it.
func anthropicError(kind string, body []byte) []byte {
	var said struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(body, &said) // then there is no message
	// The exceptions within a stream begin with a small letter.
	if kind != "" {
		kind = strings.ToUpper(kind[:1]) + kind[1:]
	}
	return modelapi.All["anthropic"].Refusal(0, cmp.Or(kinds[kind], "api_error"), said.Message)
}
