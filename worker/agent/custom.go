package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agentstore"
	"github.com/penstock-run/penstock/worker/capsule"
)

// A Custom is an agent that a settings file adds: another program, or other arguments
// and variables, for the protocol of a built-in agent.
type Custom struct {
	// Protocol is the name of the built-in agent whose protocol it speaks: "claude", or
	// "command" for a program that just runs.
	Protocol string `yaml:"protocol" json:"protocol"`
	// Command is the program and its first arguments: an absolute path, or a
	// name to look up in PATH. Empty: the protocol's own program.
	Command []string `yaml:"command,omitempty" json:"command,omitempty"`
	// Package is the package of npm with versions of the program. Empty: that of the
	// protocol, if the program is the protocol's own.
	Package string `yaml:"package,omitempty" json:"package,omitempty"`
	// Env are variables for the program. They are not secret: jobs name secrets. In a value
	// {base_url} and {api_key} stand for the way to the model API, and {model} or {model:DEFAULT} for
	// the model of the job; where there is none, the variable is left out.
	Env map[string]string `yaml:"env,omitempty" json:"env,omitempty"`
	// API is the model API that a program of protocol command or acp needs:
	// "anthropic", "openai" or "google". Other protocols imply one.
	API string `yaml:"api,omitempty" json:"api,omitempty"`
	// Auth names the method by which an agent of protocol acp authenticates, if it
	// requires that before a session.
	Auth string `yaml:"auth,omitempty" json:"auth,omitempty"`
	// Conversation names the files in the home of an agent of protocol acp that hold a
	// conversation, so that a later attempt goes on with it.
	Conversation capsule.Files `yaml:"conversation,omitempty" json:"conversation,omitzero"`
	// Skills is the directory in its home where an agent of protocol acp reads its user's skills.
	Skills string `yaml:"skills,omitempty" json:"skills,omitempty"`
	// MCPConfig is the file in its home where an agent of protocol acp reads its user's MCP servers, in the form
	// that many agents share. Empty: it takes those that the protocol names.
	MCPConfig string `yaml:"mcp_config,omitempty" json:"mcp_config,omitempty"`
}

var (
	packageName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]{0,99}/)?[a-z0-9][a-z0-9._-]{0,99}$`)
	})
	customName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`) })
	customEnv  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`) })
	homePath   = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\.?[A-Za-z0-9_][A-Za-z0-9._-]{0,63}(/\.?[A-Za-z0-9_][A-Za-z0-9._-]{0,63}){0,3}$`)
	})
)

// Validate reports what is wrong with another agent that settings add under that name.
// The error is a [*jobs.FieldError], whose field is relative to the settings file.
func (a *Agents) Validate(name string, c Custom) error {
	wrong := func(field, format string, args ...any) error {
		return &jobs.FieldError{Field: "agents." + name + field, Reason: fmt.Sprintf(format, args...)}
	}
	protocol, known := a.adapters[c.Protocol]
	switch _, taken := a.adapters[name]; {
	case !customName().MatchString(name):
		return wrong("", "is not an agent's name: use up to 63 of a-z, 0-9 and '-'")
	case taken:
		return wrong("", "is the name of an agent that is known already; use another")
	}
	if !known {
		return wrong(".protocol", "%q is not known; use %s", c.Protocol, strings.Join(a.Names(), ", "))
	}
	own := protocol.About().Brought
	switch {
	case own && len(c.Command) == 0:
		return wrong(".command", "is missing: protocol %s has no program of its own", c.Protocol)
	case !own && c.API != "":
		return wrong(".api", "is for protocols acp and command; %s has an API of its own", c.Protocol)
	case c.Auth != "" && c.Protocol != acp:
		return wrong(".auth", "is for protocol acp")
	case (c.Conversation.Known() || len(c.Conversation.Except) > 0) && c.Protocol != acp:
		return wrong(".conversation", "is for protocol acp; other protocols know where their agents keep it, or have none")
	case c.misplaces(c.Skills):
		return wrong(".skills", "is for protocol acp, and is a directory below the agent's home: %s, not %.200q", homeNames, c.Skills)
	case c.misplaces(c.MCPConfig):
		return wrong(".mcp_config", "is for protocol acp, and is a file below the agent's home: %s, not %.200q", homeNames, c.MCPConfig)
	case c.API != "" && gateVariables[c.API] == [2]string{}:
		return wrong(".api", "%q is not known; use %s", c.API, strings.Join(slices.Sorted(maps.Keys(gateVariables)), ", "))
	}
	if bad, ok := errors.AsType[*capsule.PatternError](c.Conversation.Validate()); ok {
		return wrong(".conversation."+bad.Field, "%s", bad.Why)
	}
	switch {
	case c.Package == "":
	case !packageName().MatchString(c.Package):
		return wrong(".package", "%q is not the name of a package of npm", c.Package)
	case len(c.Command) > 0 && strings.Contains(c.Command[0], "/"):
		return wrong(".package", "has its programs by name, and command[0] is a path: %s", c.Command[0])
	}
	for i, word := range c.Command {
		if strings.ContainsRune(word, 0) || i == 0 && word == "" {
			return wrong(fmt.Sprintf(".command[%d]", i), "is empty, or has a NUL byte")
		}
	}
	if len(c.Command) > 0 && strings.Contains(c.Command[0], "/") && !filepath.IsAbs(c.Command[0]) {
		return wrong(".command[0]", "%q is neither an absolute path nor a name to look up in PATH", c.Command[0])
	}
	if field, why := c.wrongVariable(cmp.Or(c.API, protocol.About().API)); field != "" {
		return wrong(field, "%s", why)
	}
	return nil
}

// wrongVariable is the field of a variable that an agent cannot have, and why; "" if all are right. API is
// the model API that the agent has.
func (c Custom) wrongVariable(api string) (field, why string) {
	for _, key := range slices.Sorted(maps.Keys(c.Env)) {
		switch {
		case !customEnv().MatchString(key):
			return ".env", fmt.Sprintf("%q is not a variable's name", key)
		case strings.HasPrefix(key, "PENSTOCK_") || strings.HasPrefix(key, "LD_"):
			return ".env." + key, "is set by the pool or would change the jail's first program; choose another name"
		case strings.ContainsRune(c.Env[key], 0):
			return ".env." + key, "has a NUL byte"
		case api == "" && needsGate(c.Env[key]):
			return ".env." + key, "names the way to a model API: say which one in the agent's field api"
		}
	}
	return "", ""
}

// homeNames says in words what homePath allows.
const homeNames = "up to four names of letters, digits, '.', '_' and '-'"

// misplaces reports whether a path that is named is not one in the home of an agent of protocol acp.
func (c Custom) misplaces(at string) bool {
	return at != "" && (c.Protocol != acp || !homePath().MatchString(at))
}

// custom is the adapter of an agent that a settings file adds.
type custom struct {
	Adapter // of its protocol
	name    string
	Custom
}

// About implements [Adapter].
func (c custom) About() About {
	about := c.Adapter.About()
	about.Name, about.Brought = c.name, false
	program := about.Protocol
	if len(c.Command) > 0 {
		program, about.Install = c.Command[0], ""
	}
	switch {
	case c.Package != "":
		about.Package = agentstore.Package{Name: c.Package, Program: program}
	case program != about.Protocol:
		about.Package = agentstore.Package{}
	}
	if c.API != "" {
		about.API = c.API
	}
	if c.Conversation.Known() {
		about.Conversation = c.Conversation
	}
	about.Skills = about.Skills || c.Skills != ""
	return about
}

// Launch implements [Adapter].
func (c custom) Launch(l Launch) (Plan, error) {
	if len(l.Program.Args) == 0 {
		l.Program.Args = c.Command // looked up in the image
	}
	if c.Adapter.About().Brought {
		l.Job.Agent.Command = l.Program.Args
	}
	if c.API != "" {
		l.API = c.API
	}
	l.Auth = c.Auth
	p, err := c.Adapter.Launch(l)
	if c.Skills != "" {
		p.Args = l.WithSkills(c.Skills, p.Args)
	}
	if c.MCPConfig != "" && namesServers(l.Job.Agent) {
		p.Files = append(p.Files, File{Path: serversFile, Content: serversConfig(l)})
		p.Args = inHome(c.MCPConfig, l.Files+"/"+serversFile, p.Args)
	}
	l.API = c.About().API
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if value, known := l.fill(c.Env[name]); known {
			p.Env = append(p.Env, name+"="+value)
		}
	}
	return p, err
}

// Decoder implements [Adapter].
func (c custom) Decoder(l Launch) Decoder {
	if c.Adapter.About().Brought {
		l.Job.Agent.Command = c.Command
		// Its variables have told it the model, which it may offer by another name.
		if slices.ContainsFunc(slices.Collect(maps.Values(c.Env)), namesModel) {
			l.Job.Agent.Model = ""
		}
	}
	l.Auth = c.Auth
	if c.MCPConfig != "" {
		l.Job.Agent.MCPServers, l.Job.Agent.Terminals = nil, false // it has read of them
	}
	return c.Adapter.Decoder(l)
}
