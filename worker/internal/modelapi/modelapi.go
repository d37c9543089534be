// Package modelapi knows the APIs of the providers of models: which calls of each may be
// made, with which headers, and how each tells of an error. Values only.
package modelapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/inspection"
)

// An API is that of a provider. Another one is another row of All.
type API struct {
	Name     string
	Upstream string
	Header   string // the header of its key; empty is Authorization
	routes   []Route
	// request and answer list the headers that pass, in canonical form; a name that
	// ends with "-" stands for all that begin with it.
	Request, Answer []string
	Rules           inspection.Rules
	Refusal         func(status int, kind, message string) []byte
	// longest is how many tokens an answer of any model has at most.
	Longest int64
	// list is the path of the list of models.
	List string
	// secrets are the query parameters that hold a credential, which is dropped.
	secrets []string
}

// A Route is a call that may be made.
type Route struct {
	Method, Path string // "*" stands for one plain segment; before a colon it is the model
	query        []string
	must         string // the required query, but for credentials; empty: any of names in query
	Local        bool   // answered here, with an empty body
	Body         bool   // has a body, which is inspected
	Asks         bool   // asks for an answer of the model
}

// All are the known APIs, by name.
var All = map[string]API{
	"anthropic": {
		Name:     "anthropic",
		Upstream: "https://api.anthropic.com",
		Header:   "X-Api-Key",
		routes: []Route{
			{Method: http.MethodPost, Path: "/v1/messages", query: []string{"beta"}, Body: true, Asks: true},
			{Method: http.MethodPost, Path: "/v1/messages/count_tokens", query: []string{"beta"}, Body: true},
			{Method: http.MethodGet, Path: "/v1/models", query: []string{"limit", "after_id", "before_id", "beta"}},
			{Method: http.MethodGet, Path: "/v1/models/*", query: []string{"beta"}},
			// Claude Code requests this when it starts, to see whether the network is
			// available.
			{Method: http.MethodHead, Path: "/", Local: true},
			{Method: http.MethodHead, Path: "/api/hello", Local: true},
			{Method: http.MethodGet, Path: "/api/hello", Local: true},
		},
		Request: []string{"Accept", "Content-Type", "User-Agent", "X-App", "Anthropic-Version", "Anthropic-Beta", "X-Stainless-"},
		Answer:  []string{"Content-Type", "Request-Id", "Retry-After", "X-Should-Retry", "Anthropic-Ratelimit-", "Cache-Control"},
		Rules:   inspection.Anthropic,
		Longest: 128_000,
		List:    "/v1/models",
		Refusal: refuseAnthropic,
	},
	"openai": {
		Name:     "openai",
		Upstream: "https://api.openai.com",
		routes: []Route{
			{Method: http.MethodPost, Path: "/v1/responses", Body: true, Asks: true},
			{Method: http.MethodPost, Path: "/v1/chat/completions", Body: true, Asks: true},
			{Method: http.MethodGet, Path: "/v1/models"},
			{Method: http.MethodGet, Path: "/v1/models/*"},
		},
		Request: []string{"Accept", "Content-Type", "User-Agent", "Originator", "Openai-Beta", "X-Stainless-"},
		Answer:  []string{"Content-Type", "X-Request-Id", "Retry-After", "Retry-After-Ms", "X-Ratelimit-", "Openai-Model", "Cache-Control"},
		Rules:   inspection.OpenAI,
		Longest: 128_000,
		List:    "/v1/models",
		Refusal: refuseOpenAI,
	},
	"google": {
		Name:     "google",
		Upstream: "https://generativelanguage.googleapis.com",
		Header:   "X-Goog-Api-Key",
		routes: []Route{
			{Method: http.MethodPost, Path: "/v1beta/models/*:generateContent", Body: true, Asks: true},
			// Without this the answer would be one list, which cannot be counted while
			// it arrives.
			{Method: http.MethodPost, Path: "/v1beta/models/*:streamGenerateContent", must: "alt=sse", Body: true, Asks: true},
			{Method: http.MethodPost, Path: "/v1beta/models/*:countTokens", Body: true},
			{Method: http.MethodGet, Path: "/v1beta/models", query: []string{"pageSize", "pageToken"}},
			{Method: http.MethodGet, Path: "/v1beta/models/*"},
		},
		Request: []string{"Accept", "Content-Type", "User-Agent", "X-Goog-Api-Client"},
		Answer:  []string{"Content-Type", "Retry-After", "Cache-Control"},
		Rules:   inspection.Google,
		Longest: 65_536,
		List:    "/v1beta/models",
		secrets: []string{"key"},
		Refusal: refuseGoogle,
	},
}

func refuseAnthropic(_ int, kind, message string) []byte {
	var e struct {
		Type  string `json:"type"`
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	e.Type, e.Error.Type, e.Error.Message = "error", kind, message
	out, err := json.Marshal(e)
	if err != nil {
		panic(err) // three strings
	}
	return out
}

func refuseOpenAI(_ int, kind, message string) []byte {
	var e struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Code    *string `json:"code"`
		} `json:"error"`
	}
	e.Error.Type, e.Error.Message = kind, message
	out, err := json.Marshal(e)
	if err != nil {
		panic(err) // two strings
	}
	return out
}

func refuseGoogle(status int, kind, message string) []byte {
	words := map[string]string{"permission_error": "PERMISSION_DENIED", "api_error": "UNAVAILABLE"}
	var e struct {
		Error struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Status  string `json:"status"`
		} `json:"error"`
	}
	e.Error.Code, e.Error.Message, e.Error.Status = status, message, cmp.Or(words[kind], "INVALID_ARGUMENT")
	out, err := json.Marshal(e)
	if err != nil {
		panic(err) // a number and two strings
	}
	return out
}

// Find returns the route of a request, and the model that its path names. The
// path is compared as it was written, so no spelling of another path can pass
// for an allowed one.
func (p API) Find(method, path string) (r Route, model string, ok bool) {
	for _, r := range p.routes {
		if r.Method != method {
			continue
		}
		before, after, wild := strings.Cut(r.Path, "*")
		if path == r.Path && !wild {
			return r, "", true
		}
		rest, begins := strings.CutPrefix(path, before)
		segment, ends := strings.CutSuffix(rest, after)
		if !wild || !begins || !ends || !plain(segment) {
			continue
		}
		if after == "" {
			segment = ""
		}
		return r, segment, true
	}
	return Route{}, "", false
}

// Credentials returns every key of the API in a request: in the headers that programs
// of any API use, and in the query if this API uses it.
func (p API) Credentials(r *http.Request) []string {
	found := slices.Concat(r.Header["X-Api-Key"], r.Header["X-Goog-Api-Key"])
	for _, value := range r.Header["Authorization"] {
		if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "Bearer") {
			found = append(found, token)
		}
	}
	if len(p.secrets) > 0 {
		query := r.URL.Query()
		for _, name := range p.secrets {
			found = append(found, query[name]...)
		}
	}
	return found
}

// Query is the query of a request as it is sent on, or what is wrong with it.
func (p API) Query(r Route, query string) (string, bool) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", false
	}
	if len(p.secrets) > 0 {
		for _, name := range p.secrets {
			values.Del(name)
		}
		query = values.Encode()
	}
	if r.must != "" {
		return query, query == r.must
	}
	for name := range values {
		if !slices.Contains(r.query, name) {
			return "", false
		}
	}
	return query, true
}

// plain reports whether s is one segment of a path without any escape.
func plain(s string) bool {
	return s != "" && s[0] != '.' && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
}

// Pass copies the headers that are on a list.
func Pass(to, from http.Header, list []string) {
	for name, values := range from {
		for _, allowed := range list {
			if name == allowed || strings.HasSuffix(allowed, "-") && strings.HasPrefix(name, allowed) {
				to[name] = values
			}
		}
	}
}
