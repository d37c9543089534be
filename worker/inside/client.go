package inside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// A Client sends requests to the worker of the jail that it runs in.
type Client struct {
	url  *url.URL
	http *http.Client
}

// NewClient returns a client for the URL in the jail's environment.
func NewClient(address string) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.User == nil {
		return nil, errors.New("the address of the worker is not one that a worker gives")
	}
	// The server is on the loopback: a proxy of the environment cannot reach it.
	return &Client{url: u, http: &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Milestone reports the progress of the agent.
func (c *Client) Milestone(ctx context.Context, text string) error {
	return c.post(ctx, "milestones", milestone{text}, &struct{}{})
}

// Result sets the job's result. A later one replaces it.
func (c *Client) Result(ctx context.Context, value []byte) error {
	return c.do(ctx, request{"PUT", "result", bytes.NewReader(value), int64(len(value))}, &struct{}{})
}

// Artifact stores size bytes of content under a name. A later one with the same name
// replaces it.
func (c *Client) Artifact(ctx context.Context, name string, content io.Reader, size int64) (jobs.Artifact, error) {
	var stored jobs.Artifact
	if err := checkName(name); err != nil {
		return stored, err
	}
	return stored, c.do(ctx, request{"PUT", "artifacts/" + name, io.LimitReader(content, size), size}, &stored)
}

// Ask asks a person, and waits for the answer.
func (c *Client) Ask(ctx context.Context, ask Ask) (Answer, error) {
	var answer Answer
	err := c.post(ctx, "asks", ask, &answer)
	return answer, err
}

// mcpPath is before the name of an MCP server.
const mcpPath = "v1/mcp/"

// MCP sends one request of the Model Context Protocol's streamable HTTP to a server of the job that
// has a URL. A nil body is none.
func (c *Client) MCP(ctx context.Context, server, method string, header http.Header, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url.JoinPath(mcpPath, url.PathEscape(server)).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	res, err := c.http.Do(req)
	return res, unanswered(ctx, err)
}

// unanswered is an error of a request without an answer. The original one has the token in it.
func unanswered(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	if err != nil {
		return fmt.Errorf("the worker does not answer: %w", errors.Unwrap(err))
	}
	return nil
}

func (c *Client) post(ctx context.Context, path string, body, into any) error {
	data := encode(body)
	return c.do(ctx, request{"POST", path, bytes.NewReader(data), int64(len(data))}, into)
}

// A request is a request of [Client.do].
type request struct {
	method, path string
	body         io.Reader
	size         int64
}

func (c *Client) do(ctx context.Context, r request, into any) error {
	req, err := http.NewRequestWithContext(ctx, r.method, c.url.JoinPath("v1", r.path).String(), r.body)
	if err != nil {
		return err
	}
	req.ContentLength = r.size
	if r.size == 0 {
		req.Body = http.NoBody
	}
	if r.size > 64<<10 { // a server that refuses the request says so before the content is sent
		req.Header.Set("Expect", "100-continue")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return unanswered(ctx, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("the worker's answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		var r refusal
		if json.Unmarshal(answer, &r) != nil || r.Error == nil {
			return fmt.Errorf("the worker answered with %s", res.Status)
		}
		return r.Error
	}
	return json.Unmarshal(answer, into)
}
