package gate

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/inspection"
)

// A provider is one model API: which calls are allowed, and how to decode them. Another
// API is another row.
type provider struct {
	upstream string
	header   string // the header of its key; empty is Authorization
	routes   []route
	// request and answer list the headers that pass, in canonical form; a name that
	// ends with "-" stands for all that begin with it.
	request, answer []string
	rules           inspection.Rules
	refusal         func(status int, kind, message string) []byte
	// longest is how many tokens an answer of any model has at most.
	longest int64
	// list is the path of the list of models.
	list string
	// secrets are the query parameters that hold a credential, which is dropped.
	secrets []string
}

// A route is a call that may be made.
type route struct {
	method, path string // "*" stands for one plain segment; before a colon it is the model
	query        []string
	must         string // the required query, but for credentials; empty: any of names in query
	local        bool   // answered here, with an empty body
	body         bool   // has a body, which is inspected
	asks         bool   // asks for an answer of the model
}

var providers = map[string]provider{
	"anthropic": {
		upstream: "https://api.anthropic.com",
		header:   "X-Api-Key",
		routes: []route{
			{method: http.MethodPost, path: "/v1/messages", query: []string{"beta"}, body: true, asks: true},
			{method: http.MethodPost, path: "/v1/messages/count_tokens", query: []string{"beta"}, body: true},
			{method: http.MethodGet, path: "/v1/models", query: []string{"limit", "after_id", "before_id", "beta"}},
			{method: http.MethodGet, path: "/v1/models/*", query: []string{"beta"}},
			// Claude Code requests this when it starts, to see whether the network is
			// available.
			{method: http.MethodHead, path: "/", local: true},
			{method: http.MethodHead, path: "/api/hello", local: true},
			{method: http.MethodGet, path: "/api/hello", local: true},
		},
		request: []string{"Accept", "Content-Type", "User-Agent", "X-App", "Anthropic-Version", "Anthropic-Beta", "X-Stainless-"},
		answer:  []string{"Content-Type", "Request-Id", "Retry-After", "X-Should-Retry", "Anthropic-Ratelimit-", "Cache-Control"},
		rules:   inspection.Anthropic,
		longest: 128_000,
		list:    "/v1/models",
		refusal: refuseAnthropic,
	},
	"openai": {
		upstream: "https://api.openai.com",
		routes: []route{
			{method: http.MethodPost, path: "/v1/responses", body: true, asks: true},
			{method: http.MethodPost, path: "/v1/chat/completions", body: true, asks: true},
			{method: http.MethodGet, path: "/v1/models"},
			{method: http.MethodGet, path: "/v1/models/*"},
		},
		request: []string{"Accept", "Content-Type", "User-Agent", "Originator", "Openai-Beta", "X-Stainless-"},
		answer:  []string{"Content-Type", "X-Request-Id", "Retry-After", "Retry-After-Ms", "X-Ratelimit-", "Openai-Model", "Cache-Control"},
		rules:   inspection.OpenAI,
		longest: 128_000,
		list:    "/v1/models",
		refusal: refuseOpenAI,
	},
	"google": {
		upstream: "https://generativelanguage.googleapis.com",
		header:   "X-Goog-Api-Key",
		routes: []route{
			{method: http.MethodPost, path: "/v1beta/models/*:generateContent", body: true, asks: true},
			// Without this the answer would be one list, which cannot be counted while
			// it arrives.
			{method: http.MethodPost, path: "/v1beta/models/*:streamGenerateContent", must: "alt=sse", body: true, asks: true},
			{method: http.MethodPost, path: "/v1beta/models/*:countTokens", body: true},
			{method: http.MethodGet, path: "/v1beta/models", query: []string{"pageSize", "pageToken"}},
			{method: http.MethodGet, path: "/v1beta/models/*"},
		},
		request: []string{"Accept", "Content-Type", "User-Agent", "X-Goog-Api-Client"},
		answer:  []string{"Content-Type", "Retry-After", "Cache-Control"},
		rules:   inspection.Google,
		longest: 65_536,
		list:    "/v1beta/models",
		secrets: []string{"key"},
		refusal: refuseGoogle,
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

// find returns the route of a request, and the model that its path names. The
// path is compared as it was written, so no spelling of another path can pass
// for an allowed one.
func (p provider) find(method, path string) (r route, model string, ok bool) {
	for _, r := range p.routes {
		if r.method != method {
			continue
		}
		before, after, wild := strings.Cut(r.path, "*")
		if path == r.path && !wild {
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
	return route{}, "", false
}

// credentials returns every key of the API in a request: in the headers that programs
// of any API use, and in the query if this API uses it.
func (p provider) credentials(r *http.Request) []string {
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

// asked is the query of a request as it is sent on, or what is wrong with it.
func (p provider) asked(r route, query string) (string, bool) {
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

// pass copies the headers that are on the list.
func pass(to, from http.Header, list []string) {
	for name, values := range from {
		for _, allowed := range list {
			if name == allowed || strings.HasSuffix(allowed, "-") && strings.HasPrefix(name, allowed) {
				to[name] = values
			}
		}
	}
}
