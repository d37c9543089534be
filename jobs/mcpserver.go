package jobs

import (
	"fmt"
	"maps"
	"net/netip"
	"net/textproto"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// MaxMCPServers is how many servers a job may give its agent.
const MaxMCPServers = 16

// An MCPServer is a server of tools for the agent, by the Model Context Protocol. It has
// either a Command or a URL.
//
// A command is a program that the agent starts in its jail, and speaks with over standard
// input and output. It has the job's variables and secrets, and Env besides.
//
// A URL is a server of streamable HTTP, to which the worker connects. Nothing of the jail
// does, whatever its network is, and the jail knows neither the URL nor the Headers.
type MCPServer struct {
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`

	URL string `json:"url,omitempty"` // https, or http without secrets or to a loopback address
	// Headers are sent with each request. ${NAME} in a value stands for the worker's secret NAME.
	Headers map[string]string `json:"headers,omitempty"`
	// Tools are those of the URL that the agent may call; one that ends with * stands for all
	// that begin so. Empty is all.
	Tools []string `json:"tools,omitempty"`
}

// Host is the host and port of the server's URL, or "" if it has none.
func (s MCPServer) Host() string {
	u, err := url.Parse(s.URL)
	if err != nil || s.URL == "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	host := u.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + port
}

// MayCall reports whether the agent may call a tool of the server.
func (s MCPServer) MayCall(tool string) bool {
	return len(s.Tools) == 0 || slices.ContainsFunc(s.Tools, func(listed string) bool {
		prefix, all := strings.CutSuffix(listed, "*")
		return listed == tool || all && strings.HasPrefix(tool, prefix)
	})
}

var (
	headerName = pattern(`^[A-Za-z0-9-]{1,100}$`)
	// secretInHeader is a secret in the value of a header.
	secretInHeader = pattern(`\$\{([^}]*)\}`)
)

// Header returns the headers of the server's requests, with the values of their secrets.
func (s MCPServer) Header(secret func(name string) string) map[string]string {
	header := map[string]string{}
	for name, value := range s.Headers {
		header[name] = secretInHeader().ReplaceAllStringFunc(value, func(found string) string {
			return secret(strings.Trim(found, "${}"))
		})
	}
	return header
}

// secrets are the names of the secrets in the headers.
func (s MCPServer) secrets() (names []string) {
	for _, value := range s.Headers {
		for _, found := range secretInHeader().FindAllStringSubmatch(value, -1) {
			names = append(names, found[1])
		}
	}
	return names
}

// HeaderSecrets are the names of the secrets that the headers of the job's MCP servers have. The
// worker uses them, and the jail does not get them, unless they are among Secrets, too.
func (j Job) HeaderSecrets() (names []string) {
	for _, s := range j.Agent.MCPServers {
		names = append(names, s.secrets()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// validateMCPServers: agents make names of tools of the servers' names, which model APIs
// bound to 64 characters.
func (j Job) validateMCPServers(found *InvalidError) {
	const field = "agent.mcp_servers"
	if len(j.Agent.MCPServers) > MaxMCPServers {
		found.add(field, fmt.Errorf("has %d servers, at most %d are allowed", len(j.Agent.MCPServers), MaxMCPServers))
	}
	for _, name := range slices.Sorted(maps.Keys(j.Agent.MCPServers)) {
		s, of := j.Agent.MCPServers[name], field+"."+name
		switch {
		case !labelName().MatchString(name) || len(name) > 32:
			found.add(field, fmt.Errorf("%q is not a server's name: use up to 32 of a-z, 0-9 and single '-' between them", name))
			continue
		case name == "penstock":
			found.add(of, fmt.Errorf("is the name of the pool's own server; choose another name"))
		}
		if s.URL != "" {
			s.validateURL(found, of)
			continue
		}
		s.validateCommand(found, of)
	}
}

func (s MCPServer) validateCommand(found *InvalidError, of string) {
	switch {
	case s.Command == "":
		found.add(of+".command", fmt.Errorf("is missing: name the program that the agent starts, or the url of a server"))
	case strings.HasPrefix(s.Command, "-") || strings.Contains(s.Command, "/") && !filepath.IsAbs(s.Command):
		found.add(of+".command", fmt.Errorf("%q is neither an absolute path nor a name to look up in PATH; a program of the repository is an argument: sh tools/server", s.Command))
	default:
		found.add(of+".command", noNUL(s.Command))
	}
	for i, arg := range s.Args {
		found.add(fmt.Sprintf("%s.args[%d]", of, i), noNUL(arg))
	}
	validateVariables(found, of+".env", s.Env)
	if len(s.Headers) > 0 {
		found.add(of+".headers", fmt.Errorf("is for servers with a url"))
	}
	if len(s.Tools) > 0 {
		found.add(of+".tools", fmt.Errorf("is for servers with a url"))
	}
}

// reservedHeaders are those that the gate or the protocol sets.
var reservedHeaders = []string{"Accept", "Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Host", "Last-Event-Id", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func (s MCPServer) validateURL(found *InvalidError, of string) {
	if s.Command != "" || len(s.Args) > 0 || len(s.Env) > 0 {
		found.add(of+".url", fmt.Errorf("is for a server elsewhere, and command, args and env for one that the agent starts: give one of them"))
	}
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Opaque != "":
		found.add(of+".url", fmt.Errorf("is not like https://host/path"))
		return
	case u.User != nil || HasCredentials(s.URL):
		found.add(of+".url", fmt.Errorf("has a user, a password or a token, which would be stored with the job: put it into headers, as ${NAME} of a secret"))
	case u.Fragment != "":
		found.add(of+".url", fmt.Errorf("has a fragment (#), which no server gets"))
	case u.Scheme == "http" && len(s.secrets()) > 0 && !loopback(u.Hostname()):
		found.add(of+".url", fmt.Errorf("is http, by which the secrets in headers could be read on the way: use https"))
	}
	found.add(of+".url", checkHost(s.Host()))
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		found.add(of+".headers."+name, checkHeader(name, s.Headers[name]))
	}
	for i, tool := range s.Tools {
		if before := strings.TrimSuffix(tool, "*"); tool == "" || strings.ContainsAny(before, "*? \t\r\n") {
			found.add(fmt.Sprintf("%s.tools[%d]", of, i), fmt.Errorf("%q is no name of a tool, nor one that ends with *", tool))
		}
	}
}

func checkHeader(name, value string) error {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case !headerName().MatchString(name):
		return fmt.Errorf("is not a name of a header")
	case slices.Contains(reservedHeaders, canonical) || strings.HasPrefix(canonical, "Mcp-"):
		return fmt.Errorf("is a header that Penstock or the agent sets")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }):
		return fmt.Errorf("has characters that a header cannot have")
	case secretParameter().MatchString(name) && !strings.Contains(value, "${"):
		return fmt.Errorf("would be stored with the job as it is: write ${NAME} for the worker's secret NAME")
	}
	rest := secretInHeader().ReplaceAllStringFunc(value, func(found string) string {
		if !envName().MatchString(strings.Trim(found, "${}")) {
			return "${"
		}
		return ""
	})
	if strings.Contains(rest, "${") {
		return fmt.Errorf("has a ${ that is not the name of a secret, as in ${TICKETS_TOKEN}")
	}
	return nil
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}
