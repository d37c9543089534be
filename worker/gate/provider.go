package gate

import (
	"encoding/json"
	"net/http"
	"strings"
)

// A provider is one model API: what may be called, and how it talks. A
// further API is a further row.
type provider struct {
	upstream string
	header   string // that its key travels in; empty is Authorization
	routes   []route
	// request and answer list the headers that pass, in canonical form; a
	// name that ends with "-" stands for all that begin with it.
	request, answer []string
	rules           rules
	usage           func(data []byte) (told, bool)
	refusal         func(kind, message string) []byte
}

// A route is a call that may be made.
type route struct {
	method, path string // a path that ends with "*" takes one more plain segment
	query        []string
	local        bool // answered here, with nothing
	body         bool // has one that is inspected
}

var providers = map[string]provider{
	"anthropic": {
		upstream: "https://api.anthropic.com",
		header:   "X-Api-Key",
		routes: []route{
			{method: http.MethodPost, path: "/v1/messages", query: []string{"beta"}, body: true},
			{method: http.MethodPost, path: "/v1/messages/count_tokens", query: []string{"beta"}, body: true},
			{method: http.MethodGet, path: "/v1/models", query: []string{"limit", "after_id", "before_id", "beta"}},
			{method: http.MethodGet, path: "/v1/models/*", query: []string{"beta"}},
			// What Claude Code asks for at its start, to see whether the
			// network is there.
			{method: http.MethodHead, path: "/", local: true},
			{method: http.MethodHead, path: "/api/hello", local: true},
			{method: http.MethodGet, path: "/api/hello", local: true},
		},
		request: []string{"Accept", "Content-Type", "User-Agent", "X-App", "Anthropic-Version", "Anthropic-Beta", "X-Stainless-"},
		answer:  []string{"Content-Type", "Request-Id", "Retry-After", "X-Should-Retry", "Anthropic-Ratelimit-", "Cache-Control"},
		rules:   anthropicRules,
		usage:   readAnthropic,
		refusal: refuseAnthropic,
	},
	"openai": {
		upstream: "https://api.openai.com",
		routes: []route{
			{method: http.MethodPost, path: "/v1/responses", body: true},
			{method: http.MethodGet, path: "/v1/models"},
			{method: http.MethodGet, path: "/v1/models/*"},
		},
		request: []string{"Accept", "Content-Type", "User-Agent", "Originator", "Openai-Beta", "X-Stainless-"},
		answer:  []string{"Content-Type", "X-Request-Id", "Retry-After", "Retry-After-Ms", "X-Ratelimit-", "Openai-Model", "Cache-Control"},
		rules:   openaiRules,
		usage:   readOpenAI,
		refusal: refuseOpenAI,
	},
}

func refuseAnthropic(kind, message string) []byte {
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

func refuseOpenAI(kind, message string) []byte {
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

// find returns the route of a request. The path is compared as it was
// written, so no spelling of another path can pass for an allowed one.
func (p provider) find(method, path string) (route, bool) {
	for _, r := range p.routes {
		if r.method != method {
			continue
		}
		prefix, wild := strings.CutSuffix(r.path, "*")
		if path == r.path && !wild {
			return r, true
		}
		if rest, ok := strings.CutPrefix(path, prefix); wild && ok && plain(rest) {
			return r, true
		}
	}
	return route{}, false
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
